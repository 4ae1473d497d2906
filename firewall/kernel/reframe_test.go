package kernel

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/packet/build"
)

// setType changes the type of a tun device, which has to be down meanwhile.
func (g *pairLab) setType(t *testing.T, f *os.File, index uint32, encap int) {
	t.Helper()
	if err := g.server.Netlink().SetLinkDown(int(index)); err != nil {
		t.Fatal(err)
	}
	raw, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { err = unix.IoctlSetInt(int(fd), unix.TUNSETLINK, encap) })
	if err == nil {
		err = g.server.Netlink().SetLinkUp(int(index))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestTypeChangesWhileHooked: an interface that gets another type while it has hooks, as a bond
// does with its first port, is evaluated by its new frames once it is attached again. If these are
// not known, it has no hooks, and no packets of containers are sent past them.
func TestTypeChangesWhileHooked(t *testing.T) {
	t.Parallel()
	for _, filters := range []bool{false, true} {
		g := newPairLab(t, "add allow udp from any to any 53\n"+
			"add deny udp from any to any\nadd allow ip from any to any\n")
		g.engine.noTCX = g.engine.noTCX || filters
		f, index := tunOf(t, g.server, "tun0", unix.ARPHRD_ETHER, "10.9.0.1/24")
		attach := func() error {
			return g.server.Do(func() error {
				_, err := g.engine.Attach(index)
				return err
			})
		}
		if err := attach(); err != nil {
			t.Fatal(err)
		}
		if g.engine.nics[index].Redirect == 0 {
			t.Error("packets are not redirected to an Ethernet interface")
		}
		g.setType(t, f, index, unix.ARPHRD_NONE)
		if err := attach(); err != nil {
			t.Fatal(err)
		}
		if g.engine.nics[index].Redirect != 0 {
			t.Error("packets are redirected to an interface without headers")
		}
		g.probeTun(t, f)

		g.setType(t, f, index, unix.ARPHRD_ETHER)
		if err := attach(); err != nil {
			t.Fatal(err)
		}
		g.setType(t, f, index, 280)
		err := attach()
		_, is := g.engine.nics[index]
		if err == nil || is || slices.Contains(g.engine.Attached(), index) {
			t.Errorf("frames that are not known: %v, NIC: %v", err, is)
		}
	}
}

// probeTun wants the datagram to port 54 refused that comes out of a tun device, and the next one,
// to port 53, let through.
func (g *pairLab) probeTun(t *testing.T, f *os.File) {
	t.Helper()
	refused, err := g.server.ListenPacket("udp", "10.9.0.1:54")
	if err != nil {
		t.Fatal(err)
	}
	defer refused.Close()
	allowed, err := g.server.ListenPacket("udp", "10.9.0.1:53")
	if err != nil {
		t.Fatal(err)
	}
	defer allowed.Close()
	own, far := netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")
	for _, port := range []uint16{54, 53} {
		if _, err := f.Write(enginetest.Packet(t, build.IPv4{Src: far, Dst: own},
			build.UDP{SrcPort: 1000, DstPort: port}, build.Data("in"))); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, 100)
	allowed.SetReadDeadline(time.Now().Add(testTimeout))
	if _, _, err := allowed.ReadFrom(got); err != nil {
		t.Errorf("to port 53: %v", err)
	}
	refused.SetReadDeadline(time.Now().Add(shortWait))
	if _, _, err := refused.ReadFrom(got); err == nil {
		t.Error("to port 54: it was let through")
	}
}
