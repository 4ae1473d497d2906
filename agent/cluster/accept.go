package cluster

import (
	"errors"
	"fmt"
	"slices"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// failed notes why the store is not followed.
func (s *Service) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := err.Error(); text != s.away { // one line, not one for each try
		s.away = text
		s.config.Log.Info("the store does not answer; Weir tries again", "err", err)
	}
	if s.own.doubt() {
		wake(s.news)
	}
	var large *store.LargeError
	if errors.As(err, &large) {
		advice := "remove hosts and members of shared tables that are not needed; if there are " +
			"not that many, someone else has written into the store: look at the store hosts"
		if s.tooLarge.acceptable {
			advice += "; if it is the right store, such as one from a backup: weir cluster " +
				"accept removes here what it does not have"
		}
		s.config.Problems.Set(aboutSize, err.Error()+": this host keeps what it knew before",
			advice)
	}
	var earlier *client.EarlierError
	if !errors.As(err, &earlier) {
		return
	}
	s.earlier = earlier.Epoch
	s.config.Problems.Set(aboutEpoch, fmt.Sprintf("this host does not follow %s, which is in "+
		"epoch %d of the cluster, while this host is in %d: it keeps what it knew before",
		earlier.Address, earlier.Epoch, earlier.Have), "an old store runs there, or someone else "+
		"wrote a later epoch into the one before: look at the store hosts"+s.acceptHintLocked())
}

// followedLocked notes that a store is followed.
func (s *Service) followedLocked() {
	s.earlier, s.away = 0, ""
	s.config.Problems.Solved(aboutEpoch)
	s.config.Problems.Solved(aboutSize)
}

// acceptHintLocked is what to do if the store is the right one.
func (s *Service) acceptHintLocked() string {
	if s.desired.Trust().Admins.Locked() {
		return ""
	}
	return "; if that is the right store: weir cluster accept"
}

// Accept has the host enter the epoch of the store if it does not follow it, or does not believe
// it; otherwise it removes what was held back. It never does both: what to remove is another
// question once the host follows the store. It is on the disk when Accept returns without an error.
// If nothing is held, the host may not follow the store because there is no space to hold what that
// does not have any more. Then it follows the store, and removes that.
func (s *Service) Accept() (api.Done, error) {
	s.mu.Lock()
	epoch := s.acceptEpochLocked()
	held := len(s.guarded.Held())
	if epoch == 0 && held == 0 && s.tooLarge.acceptable {
		s.tooLarge.accepted = true
		s.mu.Unlock()
		return api.Done{Version: api.Version, Message: "what the store does not have any more is " +
			"removed as soon as it answers: weir status shows whether it is followed"}, nil
	}
	if epoch == 0 && held > 0 {
		s.take(s.desired.Apply(s.guarded.Accept()))
		s.appendLocked(disk.Record{Accept: true})
	}
	s.noteHeld()
	s.noteRefused()
	s.settle()
	if epoch > 0 { // the copy on the disk has another one: it is written whole
		s.unwritten.lose()
		s.changedLocked()
	}
	local := s.unwritten.local
	s.mu.Unlock()
	done := api.Done{Version: api.Version, Message: accepted(epoch, held)}
	if held == 0 && epoch == 0 {
		return done, nil
	}
	err := s.onDisk()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && epoch > 0 && s.unwritten.saved < local {
		err = errors.New("the epoch is not written")
	}
	if err != nil {
		return api.Done{}, fmt.Errorf("%s, but a start would not know that until it is on the "+
			"disk: %w", done.Message, err)
	}
	return done, nil
}

// accepted says what was accepted: an epoch that is not 0, or the removals that were held.
func accepted(epoch uint64, held int) string {
	switch {
	case epoch == 0:
		return fmt.Sprintf("%d removals accepted", held)
	case held == 0:
		return fmt.Sprintf("epoch %d accepted", epoch)
	}
	return fmt.Sprintf("epoch %d accepted; %d removals are still held: weir status shows them, "+
		"weir cluster accept makes them", epoch, held)
}

// acceptEpochLocked enters the epoch of the store, if it was not believed, and returns it. What is
// in force stays until the store has something else.
func (s *Service) acceptEpochLocked() uint64 {
	implausible := s.desired.ImplausibleEpoch()
	if implausible > 0 && s.desired.AcceptEpoch(implausible) {
		s.take(s.desired.Apply(s.singles()))
		return implausible
	}
	epoch := s.earlier
	if !s.desired.AcceptEpoch(epoch) {
		return 0
	}
	// What the copy has of the later epoch would bring that back with the next start. The client
	// may be reading that copy, so it stays as it is, and another one takes its place.
	without := s.guarded.Stored().Snapshot()
	without.Entries = slices.DeleteFunc(without.Entries, func(e store.Entry) bool {
		return e.Key == cluster.IdentityKey || e.Key == cluster.HeadKey
	})
	s.take(s.desired.Apply(s.guarded.Replace(without)))
	// Each key is the only one of its kind, so its removal is held.
	s.guarded.Forget(cluster.IdentityKey, cluster.HeadKey)
	s.noteOwn(store.Batch{Revision: without.Revision}, true)
	s.followedLocked()
	return epoch
}

// singles are changes of the values of the copy that have an epoch.
func (s *Service) singles() (all []store.Change) {
	for _, key := range []string{cluster.IdentityKey, cluster.HeadKey} {
		if e, ok := s.guarded.Stored().Get(key); ok {
			all = append(all, store.Change{Entry: e})
		}
	}
	return all
}
