package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// Subjects of problems.
const (
	aboutDisk  = "the copy of the store"
	aboutHeld  = "held removals"
	aboutParts = "what the store has"
	aboutKnown = "tables of an earlier run"
	aboutRules = "the version of the rules"
	aboutLocal = "what the host knows of its cluster"
	aboutClaim = "what the store has and the host refuses"
	aboutEpoch = "the epoch of the store"
	aboutSize  = "the size of the store"
	aboutFull  = "the space of the store"
)

// Step moves the copy forward: it is guarded, checked, given to the other parts, and then to the
// disk. What the parts refuse is tried again. It does not wait for the disk.
func (s *Service) Step(b store.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.heard {
		s.heard = true
		wake(s.heads) // the copy may have a version on trial
	}
	s.followedLocked()
	before, epoch := s.guarded.Stored().Revision, s.desired.Epoch()
	s.take(s.desired.Apply(s.guarded.Step(b)))
	accepted := s.tooLarge.acceptable // or fits would have refused it
	s.tooLarge = tooLarge{}
	if accepted {
		s.take(s.desired.Apply(s.guarded.Accept()))
	}
	s.noteHeld()
	s.noteRefused()
	s.noteOwn(b, b.Revision < before || s.desired.Epoch() != epoch)
	s.settle()
	s.noteFirstCopy()
	if len(b.Changes) > 0 || b.Revision != before {
		s.appendLocked(disk.Record{Batch: b})
	}
	if accepted {
		s.appendLocked(disk.Record{Accept: true})
	}
}

// noteFirstCopy ends the time in which nothing that an earlier run left is taken away.
func (s *Service) noteFirstCopy() {
	if s.hasCopy.Load() || s.guarded.Stored().Revision == 0 {
		return
	}
	s.hasCopy.Store(true)
	wake(s.hosts)
	if s.config.Parts.FirstCopy == nil {
		return
	}
	if err := s.config.Parts.FirstCopy(); err != nil {
		s.hasCopy.Store(false) // it is tried with the next step
		s.config.Problems.Set(aboutKnown, fmt.Sprintf("tables may have members that the store "+
			"does not have: %v", err), problem.Hint(err, "Weir tries again"))
		return
	}
	s.config.Problems.Solved(aboutKnown)
}

// take adds what a step changes to what other parts have to get, and what has to be on the disk.
func (s *Service) take(e cluster.Effects) {
	maps.Copy(s.unsent.labels, e.Labels)
	maps.Copy(s.unsent.shared, e.Shared)
	for _, h := range e.Hosts {
		if h.Name == s.config.Name {
			wake(s.heads) // roles may have changed
			wake(s.news)  // and what its pods may have
			continue
		}
		s.unsent.hosts[h.Name] = h
	}
	if e.Head != nil {
		wake(s.heads)
	}
	if e.Trust || len(e.Revoked) > 0 {
		s.changedLocked()
	}
	for _, c := range e.Claims {
		if !s.opened {
			break
		}
		s.claims++
		if s.lines.Allow() { // a stolen host writes such values all the time
			s.config.Log.Warn("store-claim: a value of the store is ignored", "key", c.Key, "err",
				c.Err, "all", s.claims)
		}
	}
}

// settle does what take has collected.
func (s *Service) settle() {
	s.fillTables()
	if len(s.unsent.hosts) > 0 {
		wake(s.hosts)
	}
}

// fillTables gives the tables what they have to get.
func (s *Service) fillTables() {
	var errs []error
	if len(s.unsent.labels) > 0 {
		if err := s.config.Parts.Labels(s.unsent.labels); err != nil {
			errs = append(errs, err)
		} else {
			s.unsent.labels = map[cluster.Label]bool{}
		}
	}
	if len(s.unsent.shared) > 0 {
		if err := s.config.Parts.Shared(s.unsent.shared); err != nil {
			errs = append(errs, err)
		} else {
			s.unsent.shared = map[cluster.SharedMember]*uint32{}
		}
	}
	if len(errs) > 0 {
		s.config.Problems.Set(aboutParts, fmt.Sprintf("tables differ from those of the store: %v",
			errs), problem.Hint(errs[0], "Weir tries again"))
		return
	}
	s.config.Problems.Solved(aboutParts)
}

// FillTablesFunc gives the tables that pick returns true for what the copy on the disk has, before
// the first rules are in force. The first rules come with all tables that there are then, or not at
// all. FillTables gives the others what they have to get, and is to follow.
func (s *Service) FillTablesFunc(pick func(table string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	later := unsent{labels: map[cluster.Label]bool{}, shared: map[cluster.SharedMember]*uint32{}}
	for l, is := range s.unsent.labels {
		if !pick(l.Table) {
			later.labels[l] = is
			delete(s.unsent.labels, l)
		}
	}
	for m, value := range s.unsent.shared {
		if !pick(m.Table) {
			later.shared[m] = value
			delete(s.unsent.shared, m)
		}
	}
	s.fillTables()
	maps.Copy(s.unsent.labels, later.labels)
	maps.Copy(s.unsent.shared, later.shared)
}

// FillTables gives the tables what they have to get.
func (s *Service) FillTables() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fillTables()
}

// noteHeld shows which removals are held.
func (s *Service) noteHeld() {
	held := s.guarded.Held()
	if len(held) == 0 {
		s.heldAt = time.Time{}
		s.config.Problems.Solved(aboutHeld)
		return
	}
	if s.heldAt.IsZero() {
		s.heldAt = time.Now()
	}
	kinds := map[string]int{}
	for _, key := range held {
		kind, _, _ := strings.Cut(strings.TrimPrefix(key, cluster.Watched), "/")
		kinds[kind]++
	}
	s.config.Problems.Set(aboutHeld, fmt.Sprintf("the store lost %d keys that this host still "+
		"enforces: %v", len(held), kinds), "weir cluster accept removes them here")
}

// tick tries again what failed, and watches the disk.
func (s *Service) tick(ctx context.Context) {
	var tried time.Time
	for problem.Sleep(ctx, syncEvery) {
		s.mu.Lock()
		s.noteHangLocked()
		if time.Since(tried) >= retryEvery {
			tried = time.Now()
			s.fillTables()
			s.noteFirstCopy()
			wake(s.hosts)
		}
		s.mu.Unlock()
		s.noteFull()
	}
}

// setHosts gives the peers what they have to get. They may need long, so that they do not wait for
// each other in Step.
func (s *Service) setHosts(ctx context.Context) {
	wake(s.hosts)
	moved := moves{}
	var again <-chan time.Time
	for checked := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.hosts:
		case <-again:
		}
		if !checked && s.hasCopy.Load() {
			checked = true
			s.removeStrangers()
		}
		s.mu.Lock()
		hosts := s.unsent.hosts
		s.unsent.hosts = map[string]cluster.HostChange{}
		s.mu.Unlock()
		again = nil
		for _, h := range inOrder(hosts) {
			if moved.may(h, time.Now()) {
				s.setHost(h)
				continue
			}
			s.sendLater(h)
			again = time.After(moveEvery)
		}
	}
}

// inOrder returns hosts in the order in which the peers get them. Who is gone comes first, since
// another host may have its range by now, which no two peers have.
func inOrder(hosts map[string]cluster.HostChange) []cluster.HostChange {
	return slices.SortedFunc(maps.Values(hosts), func(a, b cluster.HostChange) int {
		switch {
		case (a.Node == nil) == (b.Node == nil):
			return strings.Compare(a.Name, b.Name)
		case a.Node == nil:
			return -1
		}
		return 1
	})
}

// setHost gives the peers one host, again and again until they take it.
func (s *Service) setHost(h cluster.HostChange) {
	about := "peer " + h.Name
	if err := s.config.Parts.Host(h); err != nil {
		s.config.Problems.Set(about, fmt.Sprintf("peer %s differs from that host in the store: "+
			"%v", h.Name, err), problem.Hint(err, "Weir tries again"))
		s.sendLater(h)
		return
	}
	s.config.Problems.Solved(about)
}

// removeStrangers removes peers that an earlier run made and that the store does not have any more.
func (s *Service) removeStrangers() {
	peers := s.config.Parts.Peers()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range peers {
		if _, unsent := s.unsent.hosts[name]; !unsent && s.desired.Node(name) == nil {
			s.unsent.hosts[name] = cluster.HostChange{Name: name}
		}
	}
}
