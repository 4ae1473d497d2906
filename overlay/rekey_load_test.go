package overlay

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// TestLongRekeysUnderLoad: sessions end and begin while as much is transferred as can be, and the
// sockets are closed and opened again and again. Closing waits for the goroutine that receives, so
// that one must never wait for the sockets.
//
// The node whose port changes says so with a packet. A peer learns an endpoint from what comes from
// there and from nothing else, so a peer that is silent would not be found again.
func TestLongRekeysUnderLoad(t *testing.T) {
	if hurry(t, "4 * time.Second") {
		return
	}
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	says, err := b.DialContext(t.Context(), "udp", a.addr+":9")
	if err != nil {
		t.Fatal(err)
	}
	defer says.Close()
	end, ended := make(chan struct{}), make(chan struct{})
	var opened atomic.Int64
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(100 * time.Millisecond):
			}
			if err := b.dev.wg.IpcSet(fmt.Sprintf("listen_port=%d\n",
				40000+opened.Load())); err != nil {
				t.Error(err)
			}
			says.Write([]byte("here")) // refused with ECONNREFUSED every other time: no one listens
			opened.Add(1)
		}
	}()
	sessions := func() uint64 { return a.dev.Stats().Answered + b.dev.Stats().Answered }
	for begin := time.Now(); time.Since(begin) < 10*time.Second || sessions() < 3 ||
		opened.Load() < 20; {
		if time.Since(begin) > testTimeout {
			t.Fatalf("%d sessions were made, and the sockets opened %d times", sessions(),
				opened.Load())
		}
		download(t, a, b, 8<<20, nil)
		download(t, b, a, 8<<20, nil)
	}
	close(end)
	select {
	case <-ended:
		t.Logf("%d sessions, sockets opened %d times", sessions(), opened.Load())
	case <-time.After(testTimeout):
		t.Fatal("the sockets are not closed")
	}
}
