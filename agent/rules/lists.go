package rules

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/rulefile"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/rule"
)

// Tables that come from a file follow it. The file is looked at every second. That needs no limit
// of the kernel's to be raised, and costs one stat. It sees a file that was moved into place or
// lies on another host. It is read once it stayed the same for a second, so that one that is still
// being written is not. A file that cannot be read, or has a line that is wrong, changes nothing.
//
// The last good content of each file is kept beside the saved rules. A host whose file is damaged
// boots with that.

const (
	// listEvery is how often files are looked at.
	listEvery = time.Second
	// listSingles is how many members are changed one by one. More are written beside what is in
	// force, which takes twice the memory meanwhile, and then take its place.
	listSingles = 4096
)

// lists is what is known of the files. Only FollowLists uses it, but for the counters and what
// copying guards.
type lists struct {
	copying sync.Mutex // held while a copy is written; its place in the lock order: agent/doc.go
	ended   bool       // guarded by copying; nothing is written any more

	settling map[string]string // what a file looked like a second ago
	refused  map[string]string // what it looked like when it could not be read
	copied   map[string]string // which content was copied
	reloads  atomic.Uint64
	failures atomic.Uint64
}

// FollowLists follows the files of tables until ctx ends.
func (m *Manager) FollowLists(ctx context.Context) {
	every := time.NewTicker(listEvery)
	defer every.Stop()
	freed := ^uint64(0)
	for {
		// reading a large file takes many times what stays
		if large := m.followLists(); large && freed != m.lists.reloads.Load() {
			freed = m.lists.reloads.Load()
			debug.FreeOSMemory()
		}
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
	}
}

// followLists looks at each file once. It reports whether one of them is large.
func (m *Manager) followLists() (large bool) {
	used := m.usedLists()
	if used == nil {
		return false
	}
	for _, l := range used {
		m.followList(l)
		large = large || len(l.Prefixes) > listSingles
	}
	m.removeCopies(used)
	return large
}

func (m *Manager) followList(l *rule.List) {
	seen, err := rulefile.Fingerprint(l.File)
	if err != nil {
		seen = err.Error()
	}
	switch {
	case seen == l.Seen:
		m.listGood(l)
		return
	case m.lists.refused[l.File] == seen:
		return
	case err == nil && m.lists.settling[l.File] != seen:
		m.lists.settling = set(m.lists.settling, l.File, seen)
		return
	}
	next := l
	if err == nil {
		next, err = rulefile.ReadList(l.File)
	}
	if err == nil {
		err = m.swapList(next)
	}
	switch {
	case err == nil:
		m.listGood(next)
	case !rulefile.IsBeingWritten(err):
		m.listFailed(l, seen, err)
	}
}

// listGood ends the problem with a file, and keeps its content.
func (m *Manager) listGood(l *rule.List) {
	delete(m.lists.refused, l.File)
	m.config.Problems.Solved(aboutList(l.File))
	m.copyList(l)
}

// set is m with a value; m may be nil.
func set(m map[string]string, key, value string) map[string]string {
	if m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// usedLists returns the lists of the rules in force and of those that may come back, by file.
func (m *Manager) usedLists() map[string]*rule.List {
	used := map[string]*rule.List{}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.rules.Set == nil || m.closed {
		return nil
	}
	for _, kept := range m.keptLocked() {
		for _, l := range kept.Lists {
			used[l.File] = l
		}
	}
	for _, l := range m.rules.Set.Lists {
		used[l.File] = l
	}
	return used
}

// aboutList is the subject of the problem that a file cannot be used.
func aboutList(file string) string { return "the table file " + file }

// listFailed reports a file that cannot be used, and what it looks like: it is not read again until
// it looks different.
func (m *Manager) listFailed(l *rule.List, seen string, err error) {
	m.lists.refused = set(m.lists.refused, l.File, seen)
	m.lists.failures.Add(1)
	m.config.Problems.Set(aboutList(l.File), fmt.Sprintf("%v; the %d prefixes read before stay in "+
		"force", err, len(l.Prefixes)), "correct the file: it is read again when it changes")
}

// swapList gives the tables of a file its new content. An error leaves what was there.
func (m *Manager) swapList(next *rule.List) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	began := time.Now()
	for table, l := range m.rules.Set.Lists {
		if l.File != next.File {
			continue
		}
		added, removed := l.Difference(next)
		m.rules.Set.Lists[table] = next
		if err := m.changeListLocked(table, added, removed); err != nil {
			m.rules.Set.Lists[table] = l
			// an engine may have some of the changes
			back := m.config.Engine.SetTable(table, m.rules.Set.Entries(table))
			return errors.Join(fmt.Errorf("table %s: %w", table, err), back)
		}
		m.lists.reloads.Add(1)
		m.config.Log.Info("table read again", "table", table, "file", l.File, "added", len(added),
			"removed", len(removed), "members", len(next.Prefixes), "took", time.Since(began))
	}
	for _, kept := range m.keptLocked() {
		for table, l := range kept.Lists {
			if l.File == next.File {
				kept.Lists[table] = next
			}
		}
	}
	return nil
}

// changeListLocked changes the members of a table in the engines. What comes is added before what
// goes is removed, so that an address that both contents have is a member all the time.
func (m *Manager) changeListLocked(table string, added, removed []netip.Prefix) error {
	e := m.config.Engine
	if len(added)+len(removed) > listSingles {
		return e.SetTable(table, m.rules.Set.Entries(table))
	}
	for _, p := range added {
		if err := e.AddTable(table, rule.TableEntry{Prefix: p}); err != nil {
			return fmt.Errorf("add %s: %w", p, err)
		}
	}
	for _, p := range removed {
		if err := e.DeleteTable(table, p); err != nil {
			return fmt.Errorf("remove %s: %w", p, err)
		}
	}
	return nil
}

// prepareLists reads the files of rules to come, but for those that the rules in force have.
func (m *Manager) prepareLists(next *rule.Ruleset) error {
	known := new(rule.Ruleset)
	m.View(func(r Version, _ *program.Program) { known.Lists = maps.Clone(r.Set.Lists) })
	return rulefile.ReadLists(next, known, rulefile.ReadList)
}

// firstLists reads the files of the rules to start with, and of those that a trial returns to.
func (m *Manager) firstLists(first Initial) error {
	if err := rulefile.ReadLists(first.Set, nil, m.firstList); err != nil || first.before == nil {
		return err
	}
	return rulefile.ReadLists(first.before.Set, first.Set, m.firstList)
}

// firstList reads a file at the start, or if that fails the copy of what it held last.
func (m *Manager) firstList(file string) (*rule.List, error) {
	var l *rule.List
	var err error
	for range 3 {
		if l, err = rulefile.ReadList(file); !rulefile.IsBeingWritten(err) {
			break
		}
		time.Sleep(listEvery)
	}
	if err == nil {
		return l, nil
	}
	last, bad := rulefile.ReadList(m.store.listCopy(file))
	if bad != nil {
		return nil, err
	}
	last.File, last.Seen = file, "copy"
	m.listFailed(last, "", err)
	return last, nil
}

// listCopy is where the content of a file is kept.
func (s *savedRules) listCopy(file string) string {
	sum := sha256.Sum256([]byte(file))
	return filepath.Join(filepath.Dir(s.path), fmt.Sprintf("table-%x.txt", sum[:8]))
}

// copyList keeps the content of a file.
func (m *Manager) copyList(l *rule.List) {
	if m.lists.copied[l.File] == l.Seen {
		return
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "# what weir read last from %q\n", l.File)
	for _, p := range l.Prefixes {
		text.Write(p.AppendTo(text.AvailableBuffer()))
		text.WriteByte('\n')
	}
	about := "the copy of " + l.File
	m.lists.copying.Lock()
	defer m.lists.copying.Unlock()
	if m.lists.ended {
		return
	}
	if err := atomicfile.Write(m.store.listCopy(l.File), text.Bytes()); err != nil {
		m.config.Problems.Set(about, fmt.Sprintf("the content of %s cannot be kept for the next "+
			"start: %v", l.File, err), "free space on the disk; Weir tries again")
		return
	}
	m.lists.copied = set(m.lists.copied, l.File, l.Seen)
	m.config.Problems.Solved(about)
}

// endCopies waits for a copy that is being written, and prevents all later ones: `weir down`
// removes them.
func (m *Manager) endCopies() {
	m.lists.copying.Lock()
	defer m.lists.copying.Unlock()
	m.lists.ended = true
}

// removeCopies removes what is kept of files that no table has any more.
func (m *Manager) removeCopies(used map[string]*rule.List) {
	for _, copies := range []map[string]string{m.lists.settling, m.lists.refused, m.lists.copied} {
		for file := range copies {
			if used[file] != nil {
				continue
			}
			delete(copies, file)
			m.config.Problems.Solved(aboutList(file))
			_ = os.Remove(m.store.listCopy(file)) // one that stays is of no use and does no harm
		}
	}
}

// Reloads returns how often the file of a table was read again, and how often that failed.
func (m *Manager) Reloads() (done, failed uint64) {
	return m.lists.reloads.Load(), m.lists.failures.Load()
}
