package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// cookieClient is a client with one SYN cookie of port 8080 of a server, which it can redeem by any
// number of acknowledgements. Its address is that of no host, so nothing answers the server.
type cookieClient struct {
	t      *testing.T
	g      *pairLab
	wire   *nstest.Frames
	server net.HardwareAddr
	seq    uint32 // of the SYN
	cookie uint32
}

// newCookieClient has a SYN answered by a cookie while rules are in force.
func newCookieClient(t *testing.T, rules string) *cookieClient {
	t.Helper()
	g := newPairLab(t, rules)
	listenTCP(t, g.server, "[::]:8080")
	g.needCookies(t)
	wire, err := nstest.OpenFrames(g.client, "eth0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopFlood(t, wire) })
	k := &cookieClient{t: t, g: g, wire: wire, seq: 7}
	g.keepCookiesOn(t)
	run := &ebpf.RunOptions{Data: k.frame(packet.FlagSYN, k.seq, 0), DataOut: make([]byte, 256)}
	if err := g.server.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		k.server = i.HardwareAddr
		_, err = g.engine.objects.WeirIn.Run(run)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if n := g.stats(t).Cookies.Sent; n != 1 || len(run.DataOut) < 14+40 {
		t.Fatalf("%d cookies, %x", n, run.DataOut)
	}
	k.cookie = binary.BigEndian.Uint32(run.DataOut[14+24:])
	return k
}

// frame returns a segment to the server.
func (k *cookieClient) frame(flags uint8, seq, ack uint32, data ...byte) []byte {
	k.t.Helper()
	b := enginetest.Packet(k.t, build.IPv4{Src: netip.MustParseAddr("10.0.0.3"),
		Dst: netip.MustParseAddr("10.0.0.1")}, build.TCP{SrcPort: 5000, DstPort: 8080, Seq: seq,
		Ack: ack, Flags: flags, Window: 64240}, build.Data(data))
	f := append(frameFor(b), b...)
	copy(f, k.server)
	return f
}

// answer returns an acknowledgement of the server.
func (k *cookieClient) answer(seq, ack uint32) []byte {
	k.t.Helper()
	b := enginetest.Packet(k.t, build.IPv4{Src: netip.MustParseAddr("10.0.0.1"),
		Dst: netip.MustParseAddr("10.0.0.3")}, build.TCP{SrcPort: 8080, DstPort: 5000, Seq: seq,
		Ack: ack, Flags: packet.FlagACK, Window: 64240})
	return append(frameFor(b), b...)
}

// redeem sends an acknowledgement of the cookie whose two numbers are larger by some amount, which
// a cookie allows.
func (k *cookieClient) redeem(more uint32) {
	k.t.Helper()
	f := k.frame(packet.FlagACK, k.seq+1+more, k.cookie+1+more)
	if err := k.wire.Send(f); err != nil {
		k.t.Fatal(err)
	}
}

// TestCookieRefusedByALaterRule: an acknowledgement that makes a state, and is refused by a later
// rule than when its SYN came, leaves no state.
func TestCookieRefusedByALaterRule(t *testing.T) {
	t.Parallel()
	k := newCookieClient(t, "add check-state\nadd allow tcp from any to me 8080 setup keep-state\n")
	rules := compile(t, "add check-state\nadd allow tcp from any to me 8080 setup keep-state "+
		"defer-action\nadd deny tcp from any to any\n")
	load := func() {
		t.Helper()
		if err := k.g.engine.Load(rules); err != nil {
			t.Fatal(err)
		}
	}
	load()
	nstest.Eventually(t, "a state is made", func() bool {
		k.redeem(0)
		return k.g.stats(t).Created > 0
	})
	load() // the packets so far are through
	if states := k.g.states(t); len(states) != 0 {
		t.Errorf("a refused packet has left %+v", states)
	}
	if s := k.g.stats(t); s.Cookies.Redeemed != 0 {
		t.Errorf("cookies %+v", s.Cookies)
	}
}

// TestCopiesOfARedeemedCookie: a client resets its connection and opens it again by copies of one
// acknowledgement. It takes a token of a rule with limit-rate for each copy but the first, for
// which its SYN has taken one. This holds for copies whose numbers are larger, too.
func TestCopiesOfARedeemedCookie(t *testing.T) {
	t.Parallel()
	k := newCookieClient(t, "add check-state\nadd allow tcp from any to me 8080 setup limit-rate "+
		"3/h burst 3 keep-state\n")
	made := k.reopen("copies find no token", func() bool {
		dropped, _ := k.g.decided(t, firewall.ReasonRate)
		return k.g.stats(t).Created > 3 || dropped > 2
	})
	if made != 3 {
		t.Errorf("three tokens were enough for %d connections", made)
	}
}

// reopen opens the connection, and resets it and opens it again by a copy of the acknowledgement
// with larger numbers, until it has happened. It returns how many connections it has opened.
func (k *cookieClient) reopen(what string, happened func() bool) uint64 {
	k.t.Helper()
	nstest.Eventually(k.t, "the connection is open", func() bool {
		k.redeem(0)
		return k.g.stats(k.t).Created > 0
	})
	more := uint32(0)
	nstest.Eventually(k.t, what, func() bool {
		if err := k.wire.Send(k.frame(packet.FlagRST, k.seq+1+more, 0)); err != nil {
			k.t.Fatal(err)
		}
		more += 1000
		k.redeem(more)
		return happened()
	})
	return k.g.stats(k.t).Created
}

// TestCopiesAreNoRedeemedCookies: copies of an acknowledgement that open a connection again do not
// count as cookies that came back. If they did, they would end the cookies in a flood.
func TestCopiesAreNoRedeemedCookies(t *testing.T) {
	t.Parallel()
	k := newCookieClient(t, "add check-state\nadd allow tcp from any to me 8080 setup keep-state\n")
	k.reopen("the connection was opened again", func() bool { return k.g.stats(t).Created > 3 })
	if n := k.g.stats(t).Cookies.Redeemed; n != 1 {
		t.Errorf("one cookie came back, %d count", n)
	}
}
