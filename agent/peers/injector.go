package peers

import (
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/weirnet/weir/agent/clock"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/packet"
)

const (
	// answersPerSecond bounds ICMP errors (RFC 1812 4.3.2.8, RFC 4443 2.4 f). Resets have no
	// bound but the queue's, as in Linux: with one for all, a pod whose packets are refused
	// would take those of others.
	answersPerSecond = 100
	// injectQueue is how many packets can wait to be sent.
	injectQueue        = 256
	hostUnreachable    = 1 // RFC 792
	addressUnreachable = 3 // RFC 4443 3.1
	// bypassTime is how long one of our packets may take from the socket to the tunnel.
	bypassTime = time.Second
)

// injector sends the tunnel's own packets: answers to refused packets, and probes of idle
// connections. Those to this host and its pods go out of the tunnel, as if the other end had sent
// them. Those to the other end enter by a raw socket and bypass the filter.
type injector struct {
	isMe, isPod func(netip.Addr) bool // the host takes the packets to an address; it is a pod's
	four, six   int                   // raw sockets
	queue       chan soft.Probe
	answers     *rate.Limiter
	newest      atomic.Int64 // when a packet was put into expected last, of clock.Now; 0: never

	mu sync.Mutex // its place in the lock order: agent/doc.go
	// guarded by mu; our packets on their way to the tunnel, without what the kernel fills in
	expected map[string]time.Time
	swept    time.Time // guarded by mu; when those that were lost were removed last
}

func newInjector(isMe, isPod func(netip.Addr) bool) (i *injector, err error) {
	i = &injector{isMe: isMe, isPod: isPod, four: -1, six: -1,
		queue:    make(chan soft.Probe, injectQueue),
		answers:  rate.NewLimiter(answersPerSecond, answersPerSecond),
		expected: map[string]time.Time{}}
	if i.four, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
		unix.IPPROTO_RAW); err == nil {
		i.six, err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK,
			unix.IPPROTO_RAW)
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

// refused queues the answer to a refused packet, if its verdict asks for one; quote is what of the
// packet may be quoted. It is called on the packet path and never blocks.
func (i *injector) refused(hook firewall.Hook, v firewall.Verdict, pkt, quote []byte) {
	if v.Answer == firewall.AnswerNone ||
		v.Answer != firewall.AnswerReset && !i.answers.Allow() {
		return
	}
	answer, ok := soft.AnswerQuoting(v, pkt, quote, netip.Addr{})
	if !ok {
		return
	}
	to := firewall.Out // back to the other node
	if hook.Dir == firewall.Out {
		to = firewall.In
	}
	i.put(soft.Probe{To: to, Packet: answer})
}

// noPeer queues the answer to a packet whose address no peer has, as WireGuard of Linux sends it.
// The range of a peer that was removed is not open before the route is. It is called on the packet
// path and never blocks.
func (i *injector) noPeer(pkt []byte) {
	v := firewall.Verdict{Answer: firewall.AnswerUnreach, Code: hostUnreachable}
	if len(pkt) > 0 && pkt[0]>>4 == 6 {
		v = firewall.Verdict{Answer: firewall.AnswerUnreach6, Code: addressUnreachable}
	}
	i.refused(firewall.Hook{Dir: firewall.Out}, v, pkt, pkt)
}

// probe queues a keepalive probe of a connection of the host itself. Those of pods are probed by
// the kernel's engine: two engines that probe would keep a dead connection alive for each other.
func (i *injector) probe(p soft.Probe) {
	var q packet.Packet
	if q.Decode(p.Packet) != packet.ReasonNone {
		return
	}
	reset := q.Proto == packet.ProtoTCP && q.TCPFlags&packet.FlagRST != 0
	switch {
	case i.isMe(q.Dst()), reset && i.isPod(q.Dst()):
		p.To = firewall.In
	case i.isMe(q.Src()), reset && i.isPod(q.Src()):
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

// send sends a packet into the tunnel, where it bypasses the filter.
func (i *injector) send(pkt []byte) {
	dst, name, ok := dissect(pkt)
	if !ok {
		return
	}
	i.expect(name, time.Now())
	var err error
	if dst.Is4() {
		err = unix.Sendto(i.four, pkt, 0, &unix.SockaddrInet4{Addr: dst.As4()})
	} else {
		err = unix.Sendto(i.six, pkt, 0, &unix.SockaddrInet6{Addr: dst.As16()})
	}
	if err != nil { // it counts as lost in the network
		i.mu.Lock()
		defer i.mu.Unlock()
		delete(i.expected, string(name))
	}
}

// expect registers one of our packets, which the filter will let out. Those that were lost are
// looked for once in bypassTime. If each packet did that, a peer that causes many resets would keep
// the lock, for which all packets wait that leave by the tunnel.
func (i *injector) expect(name []byte, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if now.Sub(i.swept) > bypassTime {
		i.swept = now
		for k, at := range i.expected {
			if now.Sub(at) > bypassTime {
				delete(i.expected, k)
			}
		}
	}
	i.expected[string(name)] = now
	i.newest.Store(int64(clock.Now() - time.Since(now)))
}

// expects reports whether one of our packets may still come. One that was lost expires.
func (i *injector) expects() bool {
	newest := i.newest.Load()
	return newest != 0 && int64(clock.Now())-newest <= int64(bypassTime)
}

// bypass returns a filter that lets our own packets out and passes all others to the given one.
func (i *injector) bypass(filter overlay.Filter) overlay.Filter {
	return func(hook firewall.Hook, packets [][]byte, segments []uint16, pass []bool) {
		if hook.Dir == firewall.In || !i.expects() {
			filter(hook, packets, segments, pass)
			return
		}
		for k := 0; k < len(packets); k++ {
			from := k
			for k < len(packets) && !i.isOwn(packets[k]) {
				k++
			}
			if k > from {
				filter(hook, packets[from:k], segments[from:k], pass[from:k])
			}
			if k < len(packets) {
				pass[k] = true
			}
		}
	}
}

// ownLimit is the most that a packet of ours has: an ICMPv6 error.
const ownLimit = 1280

func (i *injector) isOwn(pkt []byte) bool {
	if len(pkt) > ownLimit {
		return false
	}
	_, name, ok := dissect(pkt)
	if !ok {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	at, there := i.expected[string(name)]
	if !there {
		return false
	}
	if delete(i.expected, string(name)); len(i.expected) == 0 {
		i.newest.Store(0)
	}
	return time.Since(at) <= bypassTime
}

// dissect returns the destination of a packet, and a name of all of it but what the kernel fills in
// for a raw socket: IPv4's length, id and checksum.
func dissect(pkt []byte) (dst netip.Addr, name []byte, ok bool) {
	var p packet.Packet
	if p.Decode(pkt) != packet.ReasonNone {
		return dst, nil, false
	}
	if p.Version == 4 {
		return p.Dst(), pkt[12:], true
	}
	return p.Dst(), pkt, true
}
