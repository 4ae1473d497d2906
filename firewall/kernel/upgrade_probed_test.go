package kernel

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// upgradeRules let everyone ask port 80, and pods what they like, and refuse the rest.
const upgradeRules = "add 1 check-state\nadd 2 deny ip from any to any 666\n" +
	"add allow ip from any to any 80 keep-state\nadd allow ip from any to any 7 keep-state\n" +
	"add allow icmp from any to any keep-state\nadd deny ip from any to any\n"

// under is what runs while an engine is replaced.
type under struct {
	v          *cluster
	over       atomic.Bool
	all        sync.WaitGroup
	sent       atomic.Int64 // probes of refused ports
	answered   atomic.Int64
	made, lost atomic.Int64 // connections that the rules allow
	words      atomic.Int64 // that came back on those that were open before
	mu         sync.Mutex
	errs       []error // guarded by mu
}

func (u *under) run(f func() error) {
	u.all.Go(func() {
		for !u.over.Load() {
			if err := f(); err != nil {
				u.mu.Lock()
				u.errs = append(u.errs, err)
				u.mu.Unlock()
				return
			}
		}
	})
}

// probes sends datagrams to a refused port at which a server would answer.
func (u *under) probes(from *nstest.Node, to string) {
	c, err := from.DialContext(u.v.t.Context(), "udp", to)
	u.v.must(err)
	u.v.t.Cleanup(func() { c.Close() })
	u.run(func() error {
		// An ICMP error about an earlier datagram is an answer to none.
		if _, err := c.Write([]byte("probe")); err == nil {
			u.sent.Add(1)
		}
		time.Sleep(200 * time.Microsecond)
		return nil
	})
	u.all.Go(func() {
		b := make([]byte, 64)
		for !u.over.Load() {
			c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if n, err := c.Read(b); err == nil && n > 0 {
				u.answered.Add(1)
			}
		}
	})
}

// opens makes connections that the rules allow, one after the other.
func (u *under) opens(from *nstest.Node, to string) {
	u.run(func() error {
		c, err := dialFrom(from, to, testTimeout)
		if err == nil {
			err = echoWord(c, "new")
			c.Close()
		}
		if err != nil {
			u.lost.Add(1)
			return fmt.Errorf("a new connection to %s: %w", to, err)
		}
		u.made.Add(1)
		time.Sleep(5 * time.Millisecond)
		return nil
	})
}

// talks sends words through a connection that is open.
func (u *under) talks(from *nstest.Node, to string) {
	c, err := dialFrom(from, to, testTimeout)
	u.v.must(err)
	u.v.t.Cleanup(func() { c.Close() })
	u.run(func() error { return u.word(c, to) })
}

func (u *under) word(c net.Conn, to string) error {
	if err := echoWord(c, "word"); err != nil {
		return fmt.Errorf("an open connection to %s: %w", to, err)
	}
	u.words.Add(1)
	time.Sleep(time.Millisecond)
	return nil
}

// TestLayoutUpgradeUnderProbes replaces an engine below another layout's name by this one, as an
// upgrade does. Meanwhile probes go to refused ports of the host and of a pod. Connections are made
// in both directions, through masquerade and a published port too, and others stay open.
func TestLayoutUpgradeUnderProbes(t *testing.T) {
	t.Parallel()
	upgradeUnderProbes(t, newCluster(t, upgradeRules))
}

// TestLayoutUpgradeUnderProbesWithoutTCX does as on kernels before 6.6.
func TestLayoutUpgradeUnderProbesWithoutTCX(t *testing.T) {
	t.Parallel()
	v := newCluster(t, upgradeRules)
	v.byFilters()
	upgradeUnderProbes(t, v)
}

func upgradeUnderProbes(t *testing.T, v *cluster) {
	v.masquerade(20000, 40000)
	for _, port := range []int{80, 666} {
		v.serve(v.a.Node, port)
		v.serve(v.host, port)
	}
	v.serve(v.outside, 7)
	// Not port 80: the kernel may choose one port for a connection to the pod and for one to the
	// published port. In the pod both would have the same addresses and ports.
	v.serve(v.a.Node, 7)
	v.publish(8080, 7)
	u := &under{v: v}
	defer func() {
		u.over.Store(true)
		u.all.Wait()
	}()
	for _, to := range []string{"192.0.2.1:666", "10.88.0.2:666", "[fd00:88::2]:666"} {
		u.probes(v.outside, to)
	}
	for _, to := range []string{"192.0.2.1:80", "10.88.0.2:80", "192.0.2.1:8080"} {
		u.opens(v.outside, to)
		u.talks(v.outside, to)
	}
	u.opens(v.b.Node, "192.0.2.2:7")
	u.talks(v.b.Node, "192.0.2.2:7")
	u.opens(v.b.Node, "10.88.0.2:80")

	noTCX := v.engine.noTCX
	for round := range 2 {
		time.Sleep(300 * time.Millisecond)
		// The format is today's: to write an older one while packets change the tables would
		// break them. Migration tests read older formats.
		previous := filepath.Join(v.dir, "layout-12")
		v.must(v.engine.Close())
		v.must(v.host.Do(func() error { return os.Rename(layoutDir(v.dir), previous) }))
		v.open()
		v.engine.noTCX = noTCX
		v.must(v.engine.SetInterfaces(v.ifs))
		v.masquerade(20000, 40000)
		v.must(v.engine.Load(compile(t, upgradeRules)))
		for _, r := range []*podNode{v.a, v.b} {
			v.must(v.host.Do(func() error { return v.engine.SetEndpoint(r.endpoint) }))
		}
		v.publish(8080, 7)
		nic := v.ifs[1].Index
		v.must(v.host.Do(func() error { _, err := v.engine.Attach(nic); return err }))
		if _, err := os.Stat(previous); !os.IsNotExist(err) {
			t.Errorf("round %d: %s is still there: %v", round, previous, err)
		}
		made, words := u.made.Load(), u.words.Load()
		nstest.Eventually(t, "work continues", func() bool {
			return u.made.Load() > made+20 && u.words.Load() > words+200 && u.sent.Load() >= 100
		})
	}
	u.over.Store(true)
	u.all.Wait()
	t.Logf("%d probes, %d connections made, %d words", u.sent.Load(), u.made.Load(), u.words.Load())
	if n := u.answered.Load(); n != 0 {
		t.Errorf("%d of %d probes of refused ports were answered", n, u.sent.Load())
	}
	if n := u.lost.Load(); n != 0 {
		t.Errorf("%d connections were lost", n)
	}
	for _, err := range u.errs {
		t.Error(err)
	}
}
