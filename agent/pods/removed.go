package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
)

// sweepPause is how long a pod that could not be taken away rests until the next try.
const sweepPause = 5 * time.Second

// detachFailed records that a pod could not be taken away.
func (s *Service) detachFailed(err error) {
	s.config.Log.Warn(err.Error())
	s.setTrouble(err)
	select {
	case s.failed <- err:
	default: // a sweep is due anyway
	}
}

// recordFailed shows what is wrong with the records.
func (s *Service) recordFailed(err error) {
	s.config.Problems.Add(err.Error(), problem.Hint(err, "free space on the disk"))
}

// setTrouble has Problems show what failed last, nil for nothing, and reports whether that is news.
func (s *Service) setTrouble(err error) (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = err != nil && (s.trouble == nil || s.trouble.Error() != err.Error())
	s.trouble = err
	return news
}

// watchInBackground starts to take away pods that are gone; stop ends that, and waits for what is
// under way.
func (s *Service) watchInBackground(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watch(ctx)
	}()
	s.stop = func() { cancel(); <-done }
}

// watch takes away, until ctx ends, pods whose interface is gone: their namespace ended, or the
// interface was deleted. The first sweep is for those that went while the node began.
func (s *Service) watch(ctx context.Context) {
	again := time.After(0) // nil: nothing is due
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.failed:
			if again == nil { // or failures in a row would put it off
				again = time.After(sweepPause)
			}
			continue
		case <-s.config.Links.Lost():
			if len(s.dead()) == 0 { // those of detached pods are lost, too
				continue
			}
		case <-again:
			again = nil
		}
		before := s.dead()
		m := s.manager.Load()
		err := errors.Join(m.Sweep(ctx), m.PublishHeld())
		if s.setTrouble(err) {
			s.config.Log.Warn("cannot remove pods or publish ports", "err", err)
		}
		if err != nil {
			again = time.After(sweepPause)
		}
		for _, name := range before {
			s.config.Log.Info("pod removed: its interface is gone", "pod", name)
		}
	}
}

// dead names the pods of the list whose interface is gone.
func (s *Service) dead() (names []string) {
	for _, one := range s.list() {
		if s.config.Links.IsLost(one.Index) {
			names = append(names, one.Name)
		}
	}
	return names
}

// Problems lists pods that are gone and still hold resources, and ranges that are full or not free.
func (s *Service) Problems() (all []api.Problem) {
	m := s.manager.Load()
	if m == nil {
		return nil
	}
	for _, r := range m.Full() {
		all = append(all, api.Problem{What: fmt.Sprintf("pods have all addresses of %s; no "+
			"container is added", r), Advice: "[pods] ranges of weir.toml can name a larger range"})
	}
	for _, name := range s.dead() {
		all = append(all, api.Problem{What: fmt.Sprintf("pod %s: its interface is gone", name),
			Advice: "the pod is being removed; run weir status again in a moment"})
	}
	if err := s.config.Links.CheckRanges(s.config.Settings.Ranges, s.config.Tunnel); err != nil {
		all = append(all, api.Problem{What: err.Error() + "; no container is added",
			Advice: problem.Hint(err, "")})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.trouble != nil {
		all = append(all, api.Problem{What: s.trouble.Error(),
			Advice: fmt.Sprintf("Weir tries again every %v", sweepPause)})
	}
	return all
}
