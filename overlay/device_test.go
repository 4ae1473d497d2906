package overlay

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// side is a node of a test with a Device on it.
type side struct {
	*nstest.Node
	dev  *Device
	key  Key
	addr string // of the interface
}

// pair is two nodes with one or two links between them.
//
//	a: weir0 10.99.0.1 -- wire 10.98.0.1/24 ---- 10.98.0.2/24 wire -- weir0 10.99.0.2 :b
//	                 \--- spare 10.97.0.1/24 --- 10.97.0.2/24 spare --/
func pair(t *testing.T, config func(*Config), endpoints func(*Peer)) (a, b *side) {
	t.Helper()
	lab := nstest.New(t)
	a, b = &side{Node: lab.Node("a"), addr: "10.99.0.1"},
		&side{Node: lab.Node("b"), addr: "10.99.0.2"}
	lab.Join(a.Node, "wire", "10.98.0.1/24 fd98::1/64", b.Node, "wire", "10.98.0.2/24 fd98::2/64")
	lab.Join(a.Node, "spare", "10.97.0.1/24", b.Node, "spare", "10.97.0.2/24")
	for _, s := range []*side{a, b} {
		s.start(t, config)
	}
	a.peer(t, b, endpoints, "10.98.0.2:51820", "10.97.0.2:51820")
	b.peer(t, a, endpoints, "10.98.0.1:51820", "10.97.0.1:51820")
	return a, b
}

func newKey(t testing.TB) Key {
	t.Helper()
	k, err := NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// start makes the Device of a side.
func (s *side) start(t *testing.T, config func(*Config)) {
	t.Helper()
	if s.key.IsZero() {
		s.key = newKey(t)
	}
	c := Config{Name: "weir0", Key: s.key, Port: 51820}
	if testing.Verbose() {
		c.Log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", s.String())
	}
	if config != nil {
		config(&c)
	}
	err := s.Do(func() (err error) {
		s.dev, err = New(c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	dev := s.dev
	t.Cleanup(func() {
		if err := dev.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s.IP("address add " + s.addr + "/32 dev weir0")
}

// peer makes other known to s.
func (s *side) peer(t *testing.T, other *side, change func(*Peer), endpoints ...string) {
	t.Helper()
	p := Peer{Name: other.String(), Key: other.key.Public(), Endpoints: endpoints,
		Pods: []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(other.addr), 32)}}
	if change != nil {
		change(&p)
	}
	if err := s.dev.SetPeer(p); err != nil {
		t.Fatal(err)
	}
}

// download has to fetch size random bytes from from over TCP and compares them; each, when not nil,
// is called with the number of bytes that have come.
func download(t *testing.T, from, to *side, size int, each func(n int)) {
	t.Helper()
	ln, err := from.Listen("tcp", from.addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	src := rand.NewChaCha8([32]byte{1})
	want := sha256.New()
	served := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			c.SetDeadline(time.Now().Add(testTimeout))
			_, err = io.CopyN(io.MultiWriter(c, want), src, int64(size))
			c.Close()
		}
		served <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	c, err := to.DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	got, buf, n := sha256.New(), make([]byte, 64<<10), 0
	for {
		k, err := c.Read(buf)
		got.Write(buf[:k])
		if n += k; each != nil {
			each(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", n, size, err)
		}
	}
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	if n != size || !bytes.Equal(got.Sum(nil), want.Sum(nil)) {
		t.Fatalf("got %d bytes of %d, or other ones", n, size)
	}
}

// testTimeout is for what has to come, on however busy a machine.
const testTimeout = 5 * time.Minute

// echo sends datagrams of the given sizes from a to b over UDP and has them back, one after the
// other.
func echo(t *testing.T, a, b *side, sizes ...int) {
	t.Helper()
	server, err := b.ListenPacket("udp", b.addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 65535)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			server.WriteTo(buf[:n], from)
		}
	}()
	c, err := a.DialContext(t.Context(), "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	in := make([]byte, 65535)
	for i, size := range sizes {
		out := echoed(size)
		// the first may be lost to the handshake
		for end := time.Now().Add(testTimeout); ; {
			c.Write(out)
			c.SetReadDeadline(time.Now().Add(time.Second))
			n, err := c.Read(in)
			for err == nil && slices.Contains(sizes[:i], n) && bytes.Equal(in[:n], echoed(n)) &&
				!bytes.Equal(in[:n], out) {
				n, err = c.Read(in) // one before it was late, and sent again
			}
			if err == nil && bytes.Equal(in[:n], out) {
				break
			}
			if err == nil {
				t.Fatalf("sent %d bytes, got %d, or other ones", size, n)
			}
			if time.Now().After(end) {
				t.Fatalf("datagram of %d bytes: %v", size, err)
			}
		}
	}
}

// echoed is what a datagram of some size carries.
func echoed(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i + size)
	}
	return b
}

func TestTwoNodes(t *testing.T) {
	for _, offload := range []bool{true, false} {
		t.Run(fmt.Sprintf("offload=%v", offload), func(t *testing.T) {
			began := time.Now()
			a, b := pair(t, func(c *Config) {
				c.NoOffload = !offload
			}, func(p *Peer) { p.Preshared = Key{1, 2, 3} })
			echo(t, a, b, 1, 100, 1392, 1393, 5000, 60000)
			download(t, a, b, 20<<20, nil)
			download(t, b, a, 20<<20, nil)
			for _, s := range []*side{a, b} {
				list, err := s.dev.Peers()
				if err != nil || len(list) != 1 {
					t.Fatal(list, err)
				}
				p := list[0]
				if p.Received < 20<<20 || p.Sent < 20<<20 ||
					p.LastHandshake.Before(began) || p.Path.Port() != 51820 {
					t.Errorf("%s: %+v", s, p)
				}
				if st := s.dev.Stats(); st.Broken+st.ReadErrors+st.SocketDrops > 0 {
					t.Errorf("%s: %+v", s, st)
				}
			}
			pa, _ := a.dev.Peers()
			pb, _ := b.dev.Peers()
			if pa[0].RTT+pb[0].RTT == 0 {
				t.Error("the round trip time is not known")
			}
		})
	}
}

func TestSetAndRemovePeer(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 10)
	other := Peer{Name: "c", Key: newKey(t).Public(),
		Pods: []netip.Prefix{netip.MustParsePrefix("10.99.0.0/30")}}
	if err := a.dev.SetPeer(other); err == nil || !strings.Contains(err.Error(), "overlaps") {
		t.Errorf("overlapping ranges: %v", err)
	}
	other.Pods = []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16"),
		netip.MustParsePrefix("fd77::/64")}
	if err := a.dev.SetPeer(other); err != nil {
		t.Fatal(err)
	}
	routed := func(dst string) bool {
		list, err := a.Netlink().Routes(0)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list {
			if r.Dst.String() == dst && r.Link == a.dev.Index() {
				return true
			}
		}
		return false
	}
	if !routed("10.77.0.0/16") || !routed("fd77::/64") {
		t.Error("no route to the pods")
	}
	other.Pods = other.Pods[:1]
	if err := a.dev.SetPeer(other); err != nil {
		t.Fatal(err)
	}
	if !routed("10.77.0.0/16") || routed("fd77::/64") {
		t.Error("routes do not follow the pod ranges")
	}
	if err := a.dev.RemovePeer(other.Key); err != nil {
		t.Fatal(err)
	}
	if list, _ := a.dev.Peers(); routed("10.77.0.0/16") || len(list) != 1 {
		t.Errorf("something is left of the peer: %v", list)
	}
	if err := a.dev.RemovePeer(other.Key); err == nil {
		t.Error("an unknown peer was removed")
	}
	echo(t, a, b, 10)
}

// TestUnencrypted switches a pair of nodes to no encryption and back.
func TestUnencrypted(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	sent := func() uint64 {
		list, err := a.dev.Peers()
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		return list[0].Sent
	}
	for _, plain := range []bool{true, false} {
		set := func(p *Peer) { p.Unencrypted = plain }
		a.peer(t, b, set, "10.98.0.2:51820")
		b.peer(t, a, set, "10.98.0.1:51820")
		before := sent()
		echo(t, a, b, 100, 1000)
		if moved := sent() != before; moved == plain {
			t.Errorf("plain %v: %d bytes sent by the tunnel, then %d", plain, before, sent())
		}
	}
	a.peer(t, b, func(p *Peer) { p.Unencrypted = true }, "10.98.0.2:51820")
	named := Peer{Name: "named", Key: newKey(t).Public(), Unencrypted: true,
		Endpoints: []string{"10.98.0.2:1", "host.example:1"}}
	if err := a.dev.SetPeer(named); err == nil || !strings.Contains(err.Error(), "host.example") {
		t.Errorf("a name says where pods without encryption are: %v", err)
	}
	far := Peer{Name: "far", Key: newKey(t).Public(), Unencrypted: true,
		Endpoints: []string{"192.0.2.1:1"}}
	if err := a.dev.SetPeer(far); err == nil {
		t.Error("pods behind a router were taken without encryption")
	}
	if err := a.dev.RemovePeer(b.key.Public()); err != nil {
		t.Fatal(err)
	}
	if list, err := a.dev.Peers(); len(list) != 0 || err != nil {
		t.Errorf("left: %v, %v", list, err)
	}
	a.peer(t, b, func(p *Peer) { p.Unencrypted = true }, "10.98.0.2:51820")
	if err := a.dev.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := a.Netlink().Routes(0); err != nil ||
		slices.ContainsFunc(list, func(r nl.Route) bool {
			return r.Dst.String() == "10.99.0.2/32"
		}) {
		t.Errorf("a route is left: %v, %v", list, err)
	}
}

// TestDone: the interface is deleted by another program.
func TestDone(t *testing.T) {
	a, _ := pair(t, nil, nil)
	if err := a.Netlink().DeleteLink(a.dev.Index()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-a.dev.Done():
	case <-time.After(5 * time.Minute):
		t.Error("the device still runs without an interface")
	}
}

func TestBadConfig(t *testing.T) {
	k := newKey(t)
	for _, c := range []Config{{Key: k}, {Name: "weir0"}, {Name: "much-too-long-name", Key: k},
		{Name: "w", Key: k, MTU: 100}} {
		if d, err := New(c); err == nil {
			d.Close()
			t.Errorf("%+v was taken", c)
		}
	}
	for _, p := range []Peer{
		{}, {Key: k, Endpoints: []string{"host"}}, {Key: k, Endpoints: []string{"host:0"}},
		{Key: k, Endpoints: []string{":9"}},
		{Key: k, Pods: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}},
		{Key: k, Keepalive: -1},
	} {
		if p.check() == nil {
			t.Errorf("%+v was taken", p)
		}
	}
}

func TestKeys(t *testing.T) {
	path := t.TempDir() + "/key"
	k, err := LoadKey(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v: %v", info.Mode(), err)
	}
	again, err := LoadKey(path)
	if err != nil || again != k {
		t.Errorf("another key the second time: %v", err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "others") {
		t.Errorf("a key that others can read: %v", err)
	}
	// As wg pubkey prints it.
	private, err := ParseKey("GFEBHV+0PXJUttXocIsUqiW7BSgbXK7s3K9Lt+XjPEg=")
	if err != nil || private.Public().String() != "8f/Z99jET5hkpOJTKYDqzSnx8nC/6m/0jxU9qF0+9Rc=" {
		t.Errorf("public key %s: %v", private.Public(), err)
	}
	for _, s := range []string{"", "AAAA", "x", strings.Repeat("A", 45)} {
		if _, err := ParseKey(s); err == nil {
			t.Errorf("%q was taken for a key", s)
		}
	}
}
