package agent

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/packet"
)

const (
	// answersPerSecond bounds resets and ICMP errors (RFC 1812 4.3.2.8, RFC 4443 2.4 f).
	answersPerSecond = 100
	// injectQueue is how many packets may wait to be sent.
	injectQueue = 256
	// spareTime is how long a packet of ours may take from the socket to the tunnel.
	spareTime = time.Second
)

// injector sends the tunnel's own packets: answers to refused packets, and probes of idle connections. Those to this host and its pods
// go out of the tunnel, as if the other end had sent them; those to the other end go in by a raw socket, and are not judged.
type injector struct {
	node      *Node
	four, six int // raw sockets
	queue     chan soft.Probe
	pending   atomic.Int32 // packets in awaited

	mu      sync.Mutex
	awaited map[string]time.Time // guarded by mu; our packets on their way to the tunnel, without what the kernel fills in
	second  time.Time            // guarded by mu; when budget was filled last
	budget  int                  // guarded by mu
}

func newInjector(n *Node) (i *injector, err error) {
	i = &injector{node: n, four: -1, six: -1, queue: make(chan soft.Probe, injectQueue), awaited: map[string]time.Time{}}
	if i.four, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW); err == nil {
		i.six, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
	}
	if err != nil {
		i.close()
		return nil, errors.Join(errors.New("open a raw socket for answers"), err)
	}
	return i, nil
}

func (i *injector) close() {
	for _, fd := range []int{i.four, i.six} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// refused queues the answer to a packet that was refused, if it asks for one. It is called for packets and does not wait.
func (i *injector) refused(hook firewall.Hook, v firewall.Verdict, pkt []byte) {
	if v.Answer == firewall.AnswerNone || !i.may() {
		return
	}
	answer, ok := soft.Answer(v, pkt, netip.Addr{})
	if !ok {
		return
	}
	to := firewall.Out // back to the other node
	if hook.Dir == firewall.Out {
		to = firewall.In
	}
	i.put(soft.Probe{To: to, Packet: answer})
}

func (i *injector) may() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now := time.Now(); now.Sub(i.second) >= time.Second {
		i.second, i.budget = now, answersPerSecond
	}
	i.budget--
	return i.budget >= 0
}

// probe queues a keepalive probe of a connection of the host itself. Those of pods are probed by the kernel's engine: two engines that
// probe would keep a dead connection alive for each other.
func (i *injector) probe(p soft.Probe) {
	src, dst, _, ok := dissect(p.Packet)
	switch {
	case !ok:
		return
	case i.node.links.isMine(dst):
		p.To = firewall.In
	case i.node.links.isMine(src):
		p.To = firewall.Out
	default:
		return
	}
	p.Packet = append([]byte(nil), p.Packet...)
	i.put(p)
}

func (i *injector) put(p soft.Probe) {
	select {
	case i.queue <- p:
	default:
	}
}

// serve sends what is queued until stop is closed.
func (i *injector) serve(stop <-chan struct{}, d *overlay.Device) {
	for {
		select {
		case <-stop:
			return
		case p := <-i.queue:
			if p.To == firewall.In {
				d.Deliver(p.Packet)
				continue
			}
			i.send(p.Packet)
		}
	}
}

// send sends a packet into the tunnel, where it is not judged.
func (i *injector) send(pkt []byte) {
	_, dst, name, ok := dissect(pkt)
	if !ok {
		return
	}
	i.mu.Lock()
	now := time.Now()
	for k, at := range i.awaited {
		if now.Sub(at) > spareTime {
			delete(i.awaited, k)
		}
	}
	i.awaited[name] = now
	i.pending.Store(int32(len(i.awaited)))
	i.mu.Unlock()
	// What cannot be sent is as if it were lost on the way.
	if dst.Is4() {
		unix.Sendto(i.four, pkt, 0, &unix.SockaddrInet4{Addr: dst.As4()})
	} else {
		unix.Sendto(i.six, pkt, 0, &unix.SockaddrInet6{Addr: dst.As16()})
	}
}

// spare returns a Judge that lets our own packets out and asks the other one about all others.
func (i *injector) spare(judge overlay.Judge) overlay.Judge {
	return func(hook firewall.Hook, packets [][]byte, pass []bool) {
		if hook.Dir == firewall.In || i.pending.Load() == 0 {
			judge(hook, packets, pass)
			return
		}
		for k := range packets {
			if pass[k] = i.isOwn(packets[k]); !pass[k] {
				judge(hook, packets[k:k+1], pass[k:k+1])
			}
		}
	}
}

func (i *injector) isOwn(pkt []byte) bool {
	_, _, name, ok := dissect(pkt)
	if !ok {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at, there := i.awaited[name]
	delete(i.awaited, name)
	i.pending.Store(int32(len(i.awaited)))
	return there && time.Since(at) <= spareTime
}

// dissect returns the ends of a packet, and a name of all of it but what the kernel fills in for a raw socket: IPv4's length, id and
// checksum.
func dissect(pkt []byte) (src, dst netip.Addr, name string, ok bool) {
	var p packet.Packet
	if p.Decode(pkt) != packet.ReasonNone {
		return src, dst, "", false
	}
	if p.Version == 4 {
		return p.Src(), p.Dst(), string(pkt[12:]), true
	}
	return p.Src(), p.Dst(), string(pkt), true
}
