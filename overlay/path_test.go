package overlay

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// downloadAcross runs a download during which cut is called once, after a third, and returns the
// longest pause.
func downloadAcross(t *testing.T, from, to *side, size int, cut func()) (gap time.Duration) {
	t.Helper()
	last, done := time.Time{}, false
	download(t, from, to, size, func(n int) {
		if !last.IsZero() {
			gap = max(gap, time.Since(last))
		}
		if n > size/3 && !done {
			done = true
			// what is under way fills the receiver's buffer meanwhile, far less than what is left
			cut()
		}
		last = time.Now()
	})
	if !done {
		t.Fatal("the download was over before the path died")
	}
	return gap
}

// TestPathDies blocks one path in mid-download, without a sign to either end: the download must
// continue over the other, and back when that dies too. TestSilentPathIsLeft tests how soon.
func TestPathDies(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	// at both ends what comes in is lost; a rule on the way out would tell the sender
	block := func(wire string) {
		for _, s := range []*side{a, b} {
			s.Run("nft", "add table ip cut; flush table ip cut; "+
				"add chain ip cut in { type filter hook prerouting priority 0; }; add rule ip cut "+
				"in iifname "+wire+" drop")
		}
	}
	path := func() string {
		list, err := a.dev.Peers()
		if err != nil {
			t.Fatal(err)
		}
		return map[string]string{"10.98.0.2": "wire",
			"10.97.0.2": "spare"}[list[0].Path.Addr().String()]
	}
	for range 2 {
		dead := path()
		gap := downloadAcross(t, a, b, 60<<20, func() { block(dead) })
		if t.Logf("%s died: longest pause %v", dead, gap); path() == dead {
			t.Errorf("%s died and is still the path", dead)
		}
	}
	if s := a.dev.Stats(); s.Moves < 2 {
		t.Errorf("moved %d times, want 2 or more", s.Moves)
	}
}

// TestPathWithoutAnswerIsReplaced: an endpoint that never answered, and that is replaced, is the
// path no longer. One that answered is, until the peer is heard elsewhere.
func TestPathWithoutAnswerIsReplaced(t *testing.T) {
	b, _, _ := openBind(t, true)
	p := b.addPeer(Key{1})
	wrong, right := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
	at := func(what string, want netip.AddrPort) {
		t.Helper()
		if got := p.current.Load().addr; got != want {
			t.Errorf("%s: the path is %v, want %v", what, got, want)
		}
	}
	p.setCandidates([]netip.AddrPort{wrong})
	at("the first", wrong)
	p.setCandidates([]netip.AddrPort{right, wrong})
	at("one more", wrong)
	p.setCandidates([]netip.AddrPort{right})
	at("replaced", right)
	p.fromPeer(&path{addr: right}, b.now()+1, false)
	p.setCandidates([]netip.AddrPort{wrong})
	at("replaced after an answer", right)
	p.setCandidates(nil)
	at("none", right)
}

// TestSilentPathIsLeft: of a peer in use that is silent for longer than quiet, the next packet goes
// to all endpoints. If there is none, a keepalive does, which goes when the watch looks next. So
// the path changes a round trip after 0.4 s at the latest.
func TestSilentPathIsLeft(t *testing.T) {
	b, _, _ := openBind(t, true)
	p := b.addPeer(Key{1})
	var sockets [2]net.PacketConn
	var list []netip.AddrPort
	for i := range sockets {
		var err error
		if sockets[i], err = net.ListenPacket("udp4", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		defer sockets[i].Close()
		list = append(list, sockets[i].LocalAddr().(*net.UDPAddr).AddrPort())
	}
	p.setCandidates(list)
	arrives := func(at int, want byte) {
		t.Helper()
		buf := make([]byte, 200)
		sockets[at].SetReadDeadline(time.Now().Add(testTimeout))
		if _, _, err := sockets[at].ReadFrom(buf); err != nil || buf[4] != want {
			t.Fatalf("at endpoint %d: packet %d, not %d: %v", at, buf[4], want, err)
		}
	}
	send := func(n byte, heard int64) {
		t.Helper()
		p.lastReceived.Store(heard)
		packet := make([]byte, 16+100)
		packet[16], packet[20] = typeData, n
		if err := b.Send([][]byte{packet}, p, 16); err != nil {
			t.Fatal(err)
		}
	}
	send(1, b.now()+int64(time.Hour)) // or a machine that stalls would make it silent
	send(2, b.now()-int64(quiet)-1)
	arrives(0, 1)
	arrives(0, 2)
	arrives(1, 2) // and not the first one
	heard := b.now()
	p.lastReceived.Store(heard)
	p.data.Store(heard)
	at := heard
	for !p.silent(at) || !p.inUse(at) {
		if at += int64(watchEvery); at > heard+int64(busy) {
			t.Fatal("it is never silent")
		}
	}
	if after := time.Duration(at - heard); after > 400*time.Millisecond {
		t.Errorf("it is silent after %v", after)
	}
}

// TestDeadEndpointFirst: the preferred endpoint never answers; the handshake must find the other
// one at once.
func TestDeadEndpointFirst(t *testing.T) {
	a, b := pair(t, nil, func(p *Peer) {
		if p.Name == "a" {
			p.Endpoints = nil // b waits to be called
			return
		}
		p.Endpoints = []string{"10.98.0.77:51820", "no.such.name.invalid:51820", "10.97.0.2:51820"}
	})
	echo(t, a, b, 100)
	list, err := a.dev.Peers()
	if err != nil || list[0].Path.String() != "10.97.0.2:51820" || list[0].RTT == 0 {
		t.Errorf("path is %+v: %v", list, err)
	}
	// a began, and changed to the endpoint that answers; b answered.
	if s := a.dev.Stats(); s.Begun == 0 || s.Answered == 0 || s.Answered > s.Begun ||
		s.AnsweredByOther != 1 {
		t.Errorf("the caller counts %+v", s)
	}
	if s := b.dev.Stats(); s.Accepted == 0 || s.Answered != 0 {
		t.Errorf("the called counts %+v", s)
	}
}

// TestAllAreTriedWithinASecond: of endpoints that keep silent each is asked once, one after the
// other, and the last one soon enough.
func TestAllAreTriedWithinASecond(t *testing.T) {
	b, _, _ := openBind(t, true)
	for _, n := range []int{2, 3, 9} {
		p := b.addPeer(Key{byte(n)})
		var list []netip.AddrPort
		for i := range n {
			list = append(list, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 9, 9, byte(i)}), 9))
		}
		p.setCandidates(list)
		begin := b.now()
		p.sentInitiation(make([]byte, sizeInitiation), begin) // goes to the first
		asked := list[:1:1]
		for at := int64(0); at <= int64(time.Second); at += int64(watchEvery) {
			_, to, late := p.lateInitiation(begin+at, false)
			if late {
				asked = append(asked, to)
			}
			if _, _, again := p.lateInitiation(begin+at, false); late && again {
				t.Errorf("of %d two are asked at the same time", n)
			}
		}
		if !slices.Equal(asked, list) {
			t.Errorf("of %v these were asked: %v", list, asked)
		}
		p.sentInitiation(make([]byte, sizeInitiation), begin)
		if _, to, now := p.lateInitiation(begin, true); !now || to != list[1] {
			t.Errorf("when the first cannot be reached, %v is asked: %v", to, now)
		}
	}
}

// TestRoaming: a peer without endpoints calls, and calls again from another port: packets must
// follow it.
func TestRoaming(t *testing.T) {
	a, b := pair(t, nil, func(p *Peer) {
		if p.Name == "b" {
			p.Endpoints = nil
		}
	})
	echo(t, b, a, 100)
	if err := b.dev.wg.IpcSet("listen_port=40000\n"); err != nil {
		t.Fatal(err)
	}
	echo(t, b, a, 100)
	echo(t, a, b, 100)
	list, err := a.dev.Peers()
	if err != nil || list[0].Path.Port() != 40000 || list[0].Moves == 0 {
		t.Errorf("path is %+v: %v", list, err)
	}
}

// TestBetterRoute: a better route to the peer appears, by another interface and with another
// source.
func TestBetterRoute(t *testing.T) {
	a, b := pair(t, nil, func(p *Peer) { p.Endpoints = p.Endpoints[:1] })
	echo(t, a, b, 100)
	at := func() netip.Addr {
		list, err := b.dev.Peers()
		if err != nil {
			t.Fatal(err)
		}
		return list[0].Path.Addr()
	}
	if at().String() != "10.98.0.1" {
		t.Fatalf("before, a is at %s", at())
	}
	a.IP("route add 10.98.0.2 via 10.97.0.2")
	nstest.Eventually(t, "a is at its other address", func() bool {
		echo(t, a, b, 100)
		return at().String() == "10.97.0.1"
	})
	echo(t, a, b, 100)
}

// TestRestart: an agent dies without a word and comes back; its peer must talk to it again.
func TestRestart(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	if err := b.dev.Close(); err != nil {
		t.Fatal(err)
	}
	b.start(t, nil)
	b.peer(t, a, nil, "10.98.0.1:51820", "10.97.0.1:51820")
	echo(t, b, a, 100)
	download(t, a, b, 5<<20, nil)
}

// TestRekey makes a new session in mid-download.
func TestRekey(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	first, err := a.dev.Peers()
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(5100 * time.Millisecond) // WireGuard allows no handshake sooner
	downloadAcross(t, a, b, 40<<20, func() {
		a.dev.wg.ScheduleHandshakeOnUserSend([32]byte(b.key.Public()))
	})
	// the download may end before the handshake does
	nstest.Eventually(t, "there is a new session", func() bool {
		second, err := a.dev.Peers()
		return err == nil && second[0].LastHandshake.After(first[0].LastHandshake)
	})
}
