package pods

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/pod"
)

// quietLinks are those of a host on which no pod dies.
type quietLinks struct{ Links }

func (quietLinks) Lost() <-chan struct{}                    { return nil }
func (quietLinks) CheckRanges([]netip.Prefix, string) error { return nil }

// TestFailuresInARow: what could not be taken away is a problem, and is tried again after the
// pause, also while more and more cannot be.
func TestFailuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Log: slog.New(slog.DiscardHandler), Links: quietLinks{}})
		s.manager.Store(&pod.Manager{})
		s.watchInBackground(t.Context())
		defer s.Stop()
		synctest.Wait() // for the first sweep
		for range 3 {
			s.detachFailed(errors.New("no memory"))
			if len(s.Problems()) != 1 {
				t.Errorf("problems: %v", s.Problems())
			}
			time.Sleep(sweepPause/2 - time.Millisecond)
		}
		synctest.Wait()
		if len(s.Problems()) != 0 {
			t.Errorf("a pause after the first failure there was no other try: %v", s.Problems())
		}
	})
}
