package kernel

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/nstest"
)

// TestTruncatedFramesOnTheWire sends every truncation of every header through a real interface:
// each frame is decided on once, and the server behind still answers.
func TestTruncatedFramesOnTheWire(t *testing.T) {
	g := newPairLab(t,
		"add 1 check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
			"add allow ip from any to any keep-state\n")
	send := g.packetSocket(t)
	c, err := g.dial("10.0.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	decided := func() (n uint64) {
		all, err := g.engine.Decisions()
		if err != nil {
			t.Fatal(err)
		}
		for d, count := range all {
			if d.Dir == firewall.In {
				n += count.Packets
			}
		}
		return n
	}
	before, sent := decided(), uint64(0)
	for _, w := range enginetest.CompletePackets() {
		for _, b := range enginetest.Truncations(w.Bytes) {
			ethertype := []byte{8, 0}
			if w.Bytes[0]>>4 == 6 {
				ethertype = []byte{0x86, 0xdd}
			}
			send(append(ethertype, b...))
			sent++
		}
		if err := echoWord(c, "still there?"); err != nil {
			t.Fatalf("after %s: %v", w.Name, err)
		}
	}
	nstest.Eventually(t, "every frame is decided on", func() bool {
		return decided()-before >= sent
	})
	t.Logf("%d frames sent, %d decisions", sent, decided()-before)
}

// packetSocket returns a function that sends a frame, from its type on, from the client to the
// server.
func (g *pairLab) packetSocket(t *testing.T) func(frame []byte) {
	t.Helper()
	var fd int
	var own *net.Interface
	err := g.client.Do(func() (err error) {
		if own, err = net.InterfaceByName("eth0"); err == nil {
			fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	peer := g.server.Link("eth0")
	head := append(append([]byte(nil), peer.HardwareAddr...), own.HardwareAddr...)
	return func(frame []byte) {
		b := append(append([]byte(nil), head...), frame...)
		for deadline := time.Now().Add(testTimeout); ; {
			err := unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: own.Index})
			if err == nil {
				return
			}
			if err != unix.ENOBUFS || time.Now().After(deadline) {
				t.Fatalf("send a frame of %d bytes: %v", len(b), err)
			}
		}
	}
}
