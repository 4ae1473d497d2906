package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// routes are those into the tunnel to peers.
func (s *side) routes(t *testing.T) (all []string) {
	t.Helper()
	list, err := s.Netlink().Routes(0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range list {
		if r.Link == s.dev.Index() && r.Proto != unix.RTPROT_KERNEL {
			all = append(all, r.Dst.String())
		}
	}
	slices.Sort(all)
	return all
}

func prefixes(text ...string) (all []netip.Prefix) {
	for _, s := range text {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// TestReplacePeer: a peer takes the place of another one, or an error leaves everything as it was.
func TestReplacePeer(t *testing.T) {
	t.Parallel()
	a, b := pair(t, nil, nil)
	echo(t, a, b, 10)
	routes := func() []string { return a.routes(t) }
	before := routes()
	a.IP("route add 10.77.0.0/16 via 10.98.0.2")
	for says, p := range map[string]Peer{
		"another program has a route to 10.77.0.0/16": {Pods: prefixes("10.76.0.0/16",
			"10.77.0.0/16",
			"10.99.0.2/32")},
		"another program has a route to 10.98.0.0/24": {Pods: prefixes("10.98.0.0/24")},
		"has the key of this node": {Key: a.key.Public(),
			Pods: prefixes("10.99.0.2/32")},
	} {
		p.Name = "c"
		if p.Key.IsZero() {
			p.Key = newKey(t).Public()
		}
		err := a.dev.ReplacePeer(b.key.Public(), p)
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; it should say %q", err, says)
		}
		if now := routes(); !slices.Equal(now, before) {
			t.Errorf("%s: the routes are %v, before they were %v", says, now, before)
		}
		if list, err := a.dev.Peers(); err != nil || len(list) != 1 ||
			list[0].Key != b.key.Public() {
			t.Errorf("%s: the peers are %+v, %v", says, list, err)
		}
		echo(t, a, b, 10)
	}
	other := Peer{Name: "c", Key: newKey(t).Public(),
		Pods: prefixes("10.99.0.2/32", "10.76.0.0/16")}
	if err := a.dev.ReplacePeer(b.key.Public(), other); err != nil {
		t.Fatal(err)
	}
	if list, err := a.dev.Peers(); err != nil || len(list) != 1 || list[0].Key != other.Key {
		t.Errorf("the peers are %+v, %v", list, err)
	}
	if a.dev.bind.peerOf(b.key.Public()) != nil {
		t.Error("the peer that was replaced is still known")
	}
	back := Peer{Name: "b", Key: b.key.Public(), Endpoints: []string{"10.98.0.2:51820"},
		Pods: prefixes("10.99.0.2/32")}
	if err := a.dev.ReplacePeer(other.Key, back); err != nil {
		t.Fatal(err)
	}
	echo(t, a, b, 10)
	if now := routes(); !slices.Equal(now, before) {
		t.Errorf("the routes are %v, before they were %v", now, before)
	}
}

// failingDrops is WireGuard that fails to drop peers some times.
type failingDrops struct {
	wire
	times int
}

func (w *failingDrops) drop(key Key) error {
	if w.times > 0 {
		w.times--
		return errors.New("not dropped")
	}
	return w.wire.drop(key)
}

// TestPeerThatIsNotDropped: WireGuard fails to drop the peer that another one replaces. All is as
// before, or the error says that it is not; the next try works. A peer that was not removed is
// there, and can be removed again.
func TestPeerThatIsNotDropped(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 10)
	w := &failingDrops{wire: a.dev}
	fails := func(times int) {
		a.dev.mu.Lock()
		defer a.dev.mu.Unlock()
		a.dev.wire, w.times = w, times
	}
	old, routes := b.key.Public(), a.routes(t)
	other := Peer{Name: "c", Key: newKey(t).Public(), Pods: prefixes("10.99.0.2/32",
		"10.76.0.0/16")}
	has := func(what string, key Key, want []string) {
		t.Helper()
		if list, err := a.dev.Peers(); err != nil || len(list) != 1 || list[0].Key != key {
			t.Errorf("%s: the peers are %+v, %v", what, list, err)
		}
		if now := a.routes(t); !slices.Equal(now, want) {
			t.Errorf("%s: the routes are %v, not %v", what, now, want)
		}
	}
	fails(1)
	if err := a.dev.ReplacePeer(old, other); err == nil || errors.Is(err, ErrNotUndone) {
		t.Errorf("not dropped: %v", err)
	}
	has("not dropped", old, routes)
	if a.dev.bind.peerOf(other.Key) != nil {
		t.Error("not dropped: something is left of the other peer")
	}
	echo(t, a, b, 10)
	fails(2)
	if err := a.dev.ReplacePeer(old, other); !errors.Is(err, ErrNotUndone) {
		t.Errorf("neither is dropped: %v", err)
	}
	has("neither is dropped", old, routes)
	if err := a.dev.ReplacePeer(old, other); err != nil {
		t.Error(err)
	}
	both := []string{"10.76.0.0/16", "10.99.0.2/32"}
	has("the next try", other.Key, both)
	if a.dev.bind.peerOf(old) != nil {
		t.Error("the peer that was replaced is still known")
	}
	fails(1)
	if err := a.dev.RemovePeer(other.Key); err == nil {
		t.Error("a peer that was not dropped is removed")
	}
	has("not removed", other.Key, nil)
	if err := a.dev.Reroute(); err != nil {
		t.Error(err)
	}
	has("not removed, with routes again", other.Key, both)
	if err := a.dev.RemovePeer(other.Key); err != nil || len(a.routes(t)) > 0 {
		t.Errorf("%v, routes %v", err, a.routes(t))
	}
}

// TestRangesKeepTheirPeer: while a peer is changed in place, and gets and loses a range, another
// range that it has is its own at every moment.
func TestRangesKeepTheirPeer(t *testing.T) {
	a, b := pair(t, nil, nil)
	kept, other := netip.MustParsePrefix("10.99.0.2/32"), netip.MustParsePrefix("10.76.0.0/16")
	ended, looked := make(chan struct{}), make(chan int)
	go func() {
		lost := 0
		for {
			select {
			case <-ended:
				looked <- lost
				return
			default:
			}
			if a.dev.wg.PeerTo(kept.Addr()) == nil {
				lost++
			}
		}
	}()
	for i := range 500 {
		more := i&2 != 0
		a.peer(t, b, func(p *Peer) {
			if more {
				p.Pods = []netip.Prefix{other, kept}
			}
		}, "10.98.0.2:51820")
		if has := a.dev.wg.PeerTo(other.Addr()) != nil; has != more {
			t.Errorf("change %d: %v has a peer: %v", i, other, has)
			break
		}
	}
	close(ended)
	if lost := <-looked; lost > 0 {
		t.Errorf("%v had no peer %d times", kept, lost)
	}
}

// TestReroute: routes that another program deletes are set again.
func TestReroute(t *testing.T) {
	a, b := pair(t, nil, nil)
	a.IP("route flush dev weir0")
	if err := a.dev.Reroute(); err != nil {
		t.Fatal(err)
	}
	echo(t, a, b, 10)
}

// TestNameTaken: an interface of another program is left alone.
func TestNameTaken(t *testing.T) {
	lab := nstest.New(t)
	n := lab.Node("n")
	for _, command := range []string{"ip tuntap add weir0 mode tun",
		"ip link add weir0 type veth peer name other"} {
		n.Run("sh", "-c", command)
		err := n.Do(func() error {
			d, err := New(Config{Name: "weir0", Key: newKey(t), Port: 51820})
			if err == nil {
				err = d.Close()
			}
			return err
		})
		if !errors.Is(err, ErrNameTaken) {
			t.Errorf("%s: %v", command, err)
		}
		n.IP("link del weir0")
	}
}

// TestSentIsWhatLeaves: what one end counts as sent is what the other one received.
func TestSentIsWhatLeaves(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 1, 100, 1392, 5000)
	download(t, a, b, 1<<20, nil)
	var sent, received uint64
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		from, err := a.dev.Peers()
		if err != nil {
			t.Fatal(err)
		}
		to, err := b.dev.Peers()
		if err != nil {
			t.Fatal(err)
		}
		sent, received = from[0].Sent, to[0].Received
		text, err := a.dev.wg.IpcGet()
		if err != nil {
			t.Fatal(err)
		}
		text = a.dev.bind.trueSizes(text) // a moment later
		if sent == received && sent > 1<<20 &&
			strings.Contains(text, fmt.Sprintf("\ntx_bytes=%d\n", sent)) {
			return
		}
		if time.Since(begin) > testTimeout {
			t.Fatalf("sent are %d bytes, received %d; wg(8) shows\n%s", sent, received, text)
		}
	}
}
