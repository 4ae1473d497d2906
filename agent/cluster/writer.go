package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// writer writes what the host knows to its disk. It alone uses the disk after Open, and holds
// Service.mu only while it takes what there is to write: a disk that hangs delays neither steps nor
// status.
type writer struct {
	dir   *disk.Dir
	texts disk.Texts
	have  map[cluster.Digest]bool // texts that the disk has
	// When a snapshot, and what is beside the copy, could not be written; zero if the last could.
	failed, localFailed time.Time
}

// mayTry reports whether to write again what failed.
func mayTry(failed time.Time) bool { return failed.IsZero() || time.Since(failed) >= retryEvery }

// unwritten is what the disk has to get.
type unwritten struct {
	records []disk.Record
	size    int          // of the records, in bytes
	count   int          // of steps that the disk does not have, also of those that were dropped
	lost    bool         // records were dropped: a snapshot takes their place
	wait    []chan error // gets an element when all of it is on the disk

	local   uint64    // changes of what the host keeps beside the copy
	tried   uint64    // changes of it that were written, or could not be
	saved   uint64    // changes of it that were written
	answer  uint64    // the report waits until this change was tried
	writing time.Time // since when the disk is used; zero if it is not
}

// maxUnwritten is how much of the log is kept for a disk that does not take it, in bytes.
const maxUnwritten = 8 << 20

// hangs is after how long without an answer of the disk the status says so.
const hangs = 5 * time.Second

// add adds a step that was made.
func (u *unwritten) add(r disk.Record) {
	u.count++
	for i := range r.Batch.Changes {
		u.size += len(r.Batch.Changes[i].Key) + len(r.Batch.Changes[i].Value)
	}
	if u.lost = u.lost || u.size > maxUnwritten; u.lost {
		u.lose()
		return
	}
	u.records = append(u.records, r)
}

// lose has a snapshot take the place of the records.
func (u *unwritten) lose() { u.records, u.size, u.lost = nil, 0, true }

// takeRecords returns what was added since the last call, and whether some of it was dropped.
func (u *unwritten) takeRecords() (all []disk.Record, lost bool) {
	all, lost = u.records, u.lost
	u.records, u.size, u.lost = nil, 0, false
	return all, lost
}

// appendLocked has the disk get a step. The step was made: what the disk has is never ahead of what
// the host enforces.
func (s *Service) appendLocked(r disk.Record) {
	s.unwritten.add(r)
	wake(s.disk)
}

// changedLocked has the disk get what the host keeps beside the copy.
func (s *Service) changedLocked() {
	s.unwritten.local++
	wake(s.disk)
}

// writeAll writes to the disk until the context ends: what is new at once, and within a second so
// that it survives a power cut.
func (s *Service) writeAll(ctx context.Context) {
	every := time.NewTicker(syncEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.disk:
			s.writeDisk(false)
		case <-every.C:
			s.writeDisk(true)
		}
	}
}

// writeDisk writes what there is to write. With durable, it is on the disk when the error is nil.
func (s *Service) writeDisk(durable bool) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.mu.Lock()
	s.unwritten.writing = time.Now()
	local := s.unwritten.local > s.unwritten.saved && mayTry(s.writer.localFailed)
	wait := s.unwritten.wait
	s.unwritten.wait = nil
	s.mu.Unlock()
	if local {
		s.writeLocal()
	}
	err := s.writeRecords(durable || len(wait) > 0)
	for _, done := range wait {
		done <- err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwritten.writing = time.Time{}
	return err
}

// writeRecords appends to the log, or writes a snapshot if one is due.
func (s *Service) writeRecords(durable bool) (err error) {
	s.mu.Lock()
	records, lost := s.unwritten.takeRecords()
	count := s.unwritten.count
	s.mu.Unlock()
	w := &s.writer
	err = w.append(records, lost)
	switch {
	case w.dir.SnapshotDue() && mayTry(w.failed):
		s.mu.Lock()
		records, lost = s.unwritten.takeRecords()
		count = s.unwritten.count
		snapshot := disk.Snapshot{Stored: s.guarded.Stored().Snapshot(),
			Held: s.guarded.HeldEntries(), LastGood: s.desired.LastGood()}
		s.mu.Unlock()
		_ = w.append(records, lost) // the snapshot has them
		w.failed = time.Time{}
		if err = w.dir.WriteSnapshot(snapshot); err != nil {
			w.failed = time.Now()
			s.diskFailed(err)
		}
	case durable:
		err = errors.Join(err, w.dir.Sync())
	}
	if err != nil || !w.failed.IsZero() {
		return err
	}
	s.config.Problems.Solved(aboutDisk)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwritten.count -= count
	return nil
}

// append appends records to the log; lost says that some before them are missing.
func (w *writer) append(records []disk.Record, lost bool) error {
	if lost {
		w.dir.MarkGap()
	}
	for i := range records {
		if err := w.dir.Append(records[i]); err != nil {
			return err
		}
	}
	return nil
}

// writeLocal writes what the host keeps beside the copy, and the texts that it names before it.
// Texts that it does not name any more are removed after it.
func (s *Service) writeLocal() {
	s.mu.Lock()
	change := s.unwritten.local
	files, err := s.localFilesLocked()
	texts := maps.Clone(s.texts)
	s.mu.Unlock()
	w := &s.writer
	for digest, text := range texts {
		if err == nil && !w.have[digest] {
			if err = w.texts.Put(text); err == nil {
				w.have[digest] = true
			}
		}
	}
	if err == nil {
		err = files.Write(s.config.Dir)
	}
	s.mu.Lock()
	s.unwritten.tried = change
	if err == nil {
		s.unwritten.saved = change
	}
	wake(s.news) // the report may have waited
	s.mu.Unlock()
	if w.localFailed = (time.Time{}); err != nil {
		w.localFailed = time.Now()
		s.config.Problems.Set(aboutLocal, fmt.Sprintf("cannot write what the host knows of its "+
			"cluster, so that a start would not know it: %v", err),
			"free space on the disk; Weir tries again")
		return
	}
	s.config.Problems.Solved(aboutLocal)
	if err := w.texts.RemoveOthers(texts); err != nil {
		s.config.Log.Warn("cannot delete old texts of rules", "err", err)
		return
	}
	maps.DeleteFunc(w.have, func(d cluster.Digest, _ bool) bool {
		_, kept := texts[d]
		return !kept
	})
}

// localFilesLocked returns the files beside the copy.
func (s *Service) localFilesLocked() (disk.LocalFiles, error) {
	trust := s.desired.Trust()
	s.local.Cluster = trust.Cluster
	s.local.Epoch, s.local.Admins, s.local.Seen = trust.Epoch, trust.Admins, trust.Head
	s.local.Revoked = s.desired.Revoked()
	return s.local.Files()
}

// diskFailed shows that the disk does not take the copy.
func (s *Service) diskFailed(err error) {
	s.config.Problems.Set(aboutDisk, fmt.Sprintf("the copy of the store cannot be written, so "+
		"that a start would begin with an older one: %v", err),
		"free space on the disk; Weir tries again")
}

// noteHangLocked shows that the disk does not answer.
func (s *Service) noteHangLocked() {
	if u := &s.unwritten; !u.writing.IsZero() && time.Since(u.writing) > hangs {
		s.config.Problems.Set(aboutDisk, "the disk does not answer, so that a start would begin "+
			"with an older copy of the store", "look at the disk: dmesg, iostat")
	}
}

// onDisk waits until everything that happened is on the disk.
func (s *Service) onDisk() error {
	done := make(chan error, 1)
	s.mu.Lock()
	s.unwritten.wait = append(s.unwritten.wait, done)
	wake(s.disk) // without Run, Close writes
	s.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-time.After(diskTime):
		return errHangs
	}
}

var errHangs = errors.New("the disk does not answer")
