package eyeballstest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Mode is how a simulated host treats connections.
type Mode uint8

// The modes.
const (
	Drop        Mode = iota // drops everything: a black hole
	Accept                  // forwards to the server at Host.Port
	Reset                   // answers a SYN with a RST
	Unreachable             // a router answers with an ICMP error
	Stall                   // accepts, then loses all data
)

// Host is one simulated host.
type Host struct {
	Mode Mode
	// RTT is the time a connection takes.
	RTT time.Duration
	// Port is the port of the real server on this machine, for Accept and Stall. It listens on
	// Net.Local4 and Net.Local6.
	Port uint16
}

// Net is a simulated Internet behind a TUN device. Every address without a Host is a black hole.
// Connections to a host that accepts come back as if from another client, to a real server on this
// machine. So both ends are the kernel's own TCP.
type Net struct {
	Local4, Local6 netip.Addr // this machine's addresses, invalid without the family

	tun   *os.File
	wait  sync.WaitGroup
	alive chan struct{} // closed when the first packet arrives

	mu     sync.Mutex
	hosts  map[netip.Addr]Host               // guarded by mu, as all below
	fakes  map[netip.AddrPort]netip.Addr     // remote end to the fake client that replaces it
	behind map[netip.Addr]netip.AddrPort     // fake client to the remote end
	syns   map[netip.Addr]int                // connection attempts seen
	ports  map[netip.AddrPort]netip.AddrPort // fake client and port to the true local end
	closed bool
}

var (
	simLocal4 = netip.MustParseAddr("10.99.0.1")
	simLocal6 = netip.MustParseAddr("2001:db8:99::1")
)

// NewNet builds the network in this network namespace, which must be new and empty: see Inside. The
// host gets the families v4 and v6, each with a default route.
func NewNet(v4, v6 bool) (*Net, error) {
	n := &Net{hosts: map[netip.Addr]Host{}, fakes: map[netip.AddrPort]netip.Addr{},
		behind: map[netip.Addr]netip.AddrPort{},
		alive:  make(chan struct{}), syns: map[netip.Addr]int{},
		ports: map[netip.AddrPort]netip.AddrPort{}}
	var err error
	if n.tun, err = openTUN("sim0"); err != nil {
		return nil, err
	}
	lines := []string{"link set lo up", "link set sim0 up"}
	if v4 {
		n.Local4 = simLocal4
		lines = append(lines, "addr add 10.99.0.1/16 dev sim0", "route add default dev sim0")
	}
	if v6 {
		n.Local6 = simLocal6
		lines = append(lines, "-6 addr add 2001:db8:99::1/64 dev sim0 nodad",
			"-6 route add default dev sim0")
	} else if err := os.WriteFile("/proc/sys/net/ipv6/conf/sim0/disable_ipv6", []byte("1"),
		0o644); err != nil {
		n.tun.Close()
		return nil, err
	}
	for _, l := range lines {
		if err := ip(l); err != nil {
			n.tun.Close()
			return nil, err
		}
	}
	n.wait.Add(1)
	go n.serve()
	if err := n.warmUp(); err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// warmUp sends datagrams until one arrives, for minutes: the kernel notices a little later that the
// device is up, and drops what is sent before.
func (n *Net) warmUp() error {
	to := "203.0.113.1:9"
	if !n.Local4.IsValid() {
		to = "[2001:db8::9]:9"
	}
	for range 60_000 {
		if c, err := net.Dial("udp", to); err == nil {
			c.Write([]byte("ping"))
			c.Close()
		}
		select {
		case <-n.alive:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
	return errors.New("simulated network: no packet arrives on the device")
}

// openTUN makes a TUN device without packet information headers.
func openTUN(name string) (*os.File, error) {
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("simulated network: /dev/net/tun: %w", err)
	}
	var req struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(req.name[:], name)
	req.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF,
		uintptr(unsafe.Pointer(&req))); errno != 0 {
		syscall.Close(fd)
		return nil, fmt.Errorf("simulated network: TUNSETIFF: %w", errno)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Close removes the device.
func (n *Net) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.tun.Close()
	n.wait.Wait()
}

// Set puts a host on the network.
func (n *Net) Set(a netip.Addr, h Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hosts[a] = h
}

// SYNs returns the number of SYNs to an address, retransmissions included.
func (n *Net) SYNs(a netip.Addr) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.syns[a]
}

func (n *Net) serve() {
	defer n.wait.Done()
	buf := make([]byte, 65536)
	for first := true; ; {
		size, err := n.tun.Read(buf)
		if err != nil {
			if errors.Is(err, os.ErrClosed) {
				return
			}
			continue
		}
		if first {
			first = false
			close(n.alive)
		}
		if p, ok := parseSegment(buf[:size]); ok {
			n.handle(p)
		}
	}
}

// handle handles a segment that this machine sent.
func (n *Net) handle(p segment) {
	n.mu.Lock()
	defer n.mu.Unlock()
	src, dst := p.src(), p.dst()
	if remote, ok := n.behind[dst.Addr()]; ok { // a server's answer to a fake client
		if client, ok := n.ports[dst]; ok {
			p.rewrite(remote, client)
			n.tun.Write(p.b)
		}
		return
	}
	if p.syn() {
		n.syns[dst.Addr()]++
	}
	h := n.hosts[dst.Addr()]
	switch h.Mode {
	case Reset:
		if p.syn() {
			n.later(h.RTT, p.refusal())
		}
	case Unreachable:
		n.later(h.RTT, p.unreachable())
	case Stall:
		if p.payload() == 0 {
			n.forward(p, src, dst, h)
		}
	case Accept:
		n.forward(p, src, dst, h)
	}
}

// forward sends a segment back to the real server. The caller holds mu.
func (n *Net) forward(p segment, src, dst netip.AddrPort, h Host) {
	fake, ok := n.fakes[dst]
	if !ok {
		fake = n.newFake(dst)
	}
	client := netip.AddrPortFrom(fake, src.Port())
	n.ports[client] = src
	p.rewrite(client, netip.AddrPortFrom(src.Addr(), h.Port))
	n.later(h.RTT, append([]byte(nil), p.b...))
}

func (n *Net) newFake(remote netip.AddrPort) netip.Addr {
	serial := len(n.fakes) + 1
	b := simLocal6.As16()
	b[14], b[13] = byte(serial), byte(serial>>8)
	b[15] = 2
	fake := netip.AddrFrom16(b)
	if remote.Addr().Is4() {
		fake = netip.AddrFrom4([4]byte{10, 99, byte(1 + serial>>8), byte(serial)})
	}
	n.fakes[remote], n.behind[fake] = fake, remote
	return fake
}

// later writes a packet to the device after a delay. The caller holds mu.
func (n *Net) later(wait time.Duration, packet []byte) {
	if wait == 0 {
		n.tun.Write(packet)
		return
	}
	time.AfterFunc(wait, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.closed {
			n.tun.Write(packet)
		}
	})
}
