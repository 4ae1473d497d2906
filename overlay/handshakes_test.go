package overlay

import (
	"net"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestHandshakeHoldsUpNoOther: packets to a peer do not wait while a handshake with another one
// begins, however long that takes.
func TestHandshakeHoldsUpNoOther(t *testing.T) {
	a, b := pair(t, nil, nil)
	echo(t, a, b, 100)
	key := newKey(t).Public()
	if err := a.dev.SetPeer(Peer{Name: "absent", Key: key, Endpoints: []string{"10.98.0.9:51820"},
		Pods: prefixes("10.77.0.0/16")}); err != nil {
		t.Fatal(err)
	}
	absent := a.dev.bind.peerOf(key)
	absent.mu.Lock() // a handshake that begins is recorded under this lock
	defer absent.mu.Unlock()
	c, err := a.ListenPacket("udp", a.addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.WriteTo([]byte("hello"), &net.UDPAddr{IP: net.IPv4(10, 77, 0, 1),
		Port: 1000}); err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "the packet waits", func() bool {
		return a.dev.bind.waits.peers.Load() == 1
	})
	echo(t, a, b, 100)
}
