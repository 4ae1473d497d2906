package peers

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/atomicfile"
)

// A change by hand is answered when it is on the disk. Hosts of a cluster are changed at once, and
// recorded afterwards: the cluster's own copy on the disk is not ahead of what is enforced, either.
// Neither kind keeps Service.mu while it writes; only the rename of a change by hand is under it.

// saving is what the disk has to get.
type saving struct {
	changes  uint64        // of the peers
	unsaved  bool          // the file lacks some
	since    time.Time     // since when it is being written; zero if it is not
	failed   error         // why it could not be written
	filed    string        // the interface that the file names
	unsavedC chan struct{} // has an element when unsaved became true
}

// hangs is after how long without an answer of the disk the status says so.
const hangs = 5 * time.Second

// saveSoonLocked has the file get what is recorded.
func (p *Service) saveSoonLocked() {
	p.saving.unsaved = true
	select {
	case p.saving.unsavedC <- struct{}{}:
	default: // it will be written anyway
	}
}

// saveAll writes the file after changes, until the Service is closed.
func (p *Service) saveAll() {
	var again <-chan time.Time
	for {
		select {
		case <-p.stop:
			return
		case <-p.saving.unsavedC:
		case <-again:
		}
		if again = nil; p.saveUnsaved() != nil {
			again = time.After(retryEvery)
		}
	}
}

// saveUnsaved writes the file if it lacks something.
func (p *Service) saveUnsaved() error {
	p.file.Lock()
	defer p.file.Unlock()
	p.mu.Lock()
	if !p.saving.unsaved || p.unread != nil {
		p.mu.Unlock()
		return nil
	}
	r := p.record(p.recorded)
	p.saving.unsaved, p.saving.since = false, time.Now()
	p.mu.Unlock()
	err := r.write(p.config.Files.Record)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.saving.since = (time.Time{}); err == nil {
		p.saving.filed = r.Interface
	}
	if err != nil && p.saving.failed == nil {
		p.config.Log.Error("the record of peers is not written", "err", err)
	}
	p.saving.failed = err
	p.saving.unsaved = p.saving.unsaved || err != nil
	return err
}

// prepareLocked writes the record of a change beside its file. It releases mu meanwhile, and begins
// again if the peers are others by then, so that next has to check what depends on them. The caller
// has the file's lock.
func (p *Service) prepareLocked(next func() (recorded, error)) (recorded, *atomicfile.Pending,
	error) {
	for {
		k, err := next()
		if err != nil {
			return k, nil, err
		}
		r, changes := p.record(k), p.saving.changes
		p.saving.since = time.Now()
		p.mu.Unlock()
		pending, err := r.prepare(p.config.Files.Record)
		p.mu.Lock()
		p.awaitCutLocked()
		p.saving.since = time.Time{}
		if err != nil {
			return k, nil, fmt.Errorf("nothing was changed: %w", err)
		}
		if p.saving.changes == changes {
			return k, pending, nil
		}
		pending.Discard()
	}
}

// savingProblemsLocked shows that the disk lacks changes.
func (p *Service) savingProblemsLocked() (all []api.Problem) {
	s := &p.saving
	if s.failed != nil {
		all = append(all, api.Problem{What: "the record of peers cannot be written, so that a " +
			"start would know earlier ones: " + s.failed.Error(),
			Advice: "free space on the disk; Weir tries again"})
	}
	if !s.since.IsZero() && time.Since(s.since) > hangs {
		all = append(all, api.Problem{What: "the disk does not answer, so that a start would " +
			"know earlier peers", Advice: "look at the disk: dmesg, iostat"})
	}
	return all
}
