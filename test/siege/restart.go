package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// restartRules name interfaces, globs, pods and labels. The last rule but one would pass what the
// rules before it refuse, if one of the names were lost. What is refused on its way out is refused
// before the states are asked: on its way in, that rule has made one.
const restartRules = `
add 5 deny tcp from any to any 82 out via pod:web
add 10 check-state
add 50 deny tcp from any to me 22 recv eth0
add 60 deny tcp from any to me 23 via eth*
add 70 deny tcp from table(role=outsider) to table(app=web) 81
add 100 allow tcp from any to me 80 recv eth0 setup keep-state
add 130 allow tcp from table(role=client) to table(app=web) 80 setup keep-state
add 140 allow tcp from any to table(app=web) 80 in recv eth* setup keep-state
add 145 allow tcp from any to any 80 out via pod:web setup keep-state
add 160 allow ip from table(role=client) to 10.66.0.3 keep-state
add 200 allow tcp from any to any 22,23,81,82 setup keep-state
add 210 allow udp from me to any keep-state
`

// restart is a way in which an agent ends and the next one starts.
type restart struct {
	name          string
	end           syscall.Signal
	killedInStart bool // a start in between is killed
	// Each time either the sizes of the tables or their layout are others.
	upgrade bool
}

func (k restart) title() string { return "restart, " + k.name }

var restarts = []restart{
	{name: "kill -9", end: syscall.SIGKILL},
	{name: "SIGTERM", end: syscall.SIGTERM},
	{name: "killed again in its start", end: syscall.SIGKILL, killedInStart: true},
	{name: "upgrade with another layout or table size", end: syscall.SIGTERM, upgrade: true},
}

// settings are those of the n-th start.
func (k restart) settings(n int) string {
	if !k.upgrade {
		return ""
	}
	return fmt.Sprintf("[states]\nmax = %d\n", 262144-(n+1)/2%2*131072)
}

// binary is that of the n-th start.
func (k restart) binary(c config, n int) string {
	if !k.upgrade {
		return c.weir
	}
	return c.weirs[n/2%2]
}

// restartRow is a line of the table of restarts.
type restartRow struct {
	kind           string
	times          int
	median         time.Duration // from start to ready
	probes, passed int64
	ok             int64
	failed, slow   int64
	lost, kept     int
	why            string
	took           time.Duration
}

// probe is a stream of SYNs to ports that are refused.
type probe struct {
	from  *nstest.Node
	src   string
	to    netip.Addr
	mac   net.HardwareAddr
	ports []uint16
}

// runRestart restarts the agent n times under probes and legitimate work.
func (c config) runRestart(k restart) (r restartRow, err error) {
	r = restartRow{kind: k.name}
	w, err := newTestbed()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.serve(); err != nil {
		return r, err
	}
	for _, at := range []struct {
		node *nstest.Node
		port int
	}{{w.host, 22}, {w.host, 23}, {w.web, 81}, {w.web, 82}} {
		if err := w.services.tcp(at.node, fmt.Sprintf(":%d", at.port)); err != nil {
			return r, err
		}
	}
	c.weir = k.binary(c, 0)
	if err := c.raiseWeir(w, &scenario{rules: restartRules, settings: k.settings(0)}); err != nil {
		return r, err
	}
	probes, err := w.outsiders(c.pods)
	if err != nil {
		return r, err
	}
	jobs := []work{tcpIn, published, masqTCP,
		{"TCP pod to pod", clientNode, "tcp", webAddr + ":80", "", true}}
	stop := make(chan struct{})
	defer close(stop)
	kept, err := keep(w, jobs, keptEach, stop)
	if err != nil {
		return r, err
	}
	if err := c.restartUnder(w, k, probes, jobs, &r); err != nil {
		return r, err
	}
	r.lost, r.kept = lost(kept), len(kept)
	for _, k := range kept {
		if k.broken.Load() {
			r.why += fmt.Sprintf(" lost: %s, %v", k.work.name, k.why.Load())
		}
	}
	return r, nil
}

// outsiders attaches a pod that may not reach the web server, and others up to a number, and
// returns all probes.
func (w *testbed) outsiders(pods int) ([]probe, error) {
	var s *nstest.Node
	for i := 2; i < pods; i++ {
		n, err := w.lab.AddNode(fmt.Sprintf("pod%d", i))
		if err != nil {
			return nil, err
		}
		label := fmt.Sprintf("n=%d", i)
		if i == 2 {
			s, label = n, "role=outsider"
		}
		args := []string{"--label", label}
		if i == 2 {
			args = append(args, "--addr", "10.88.0.4")
		}
		if err := w.agentNode.attach(n, args...); err != nil {
			return nil, err
		}
	}
	gateway, err := gatewayMAC(s)
	if err != nil {
		return nil, err
	}
	web := netip.MustParseAddr(webAddr)
	return []probe{
		{w.outside, outsideAddr, host, w.hostMAC, []uint16{22, 23}},
		{s, "10.88.0.4", web, gateway, []uint16{81, 82}},
	}, nil
}

// gatewayMAC is the address that a pod's frames go to.
func gatewayMAC(pod *nstest.Node) (net.HardwareAddr, error) {
	out, err := pod.Command("ip", "-4", "neigh", "show", "dev", "eth0").Output()
	if err != nil {
		return nil, err
	}
	var addr, word, mac string
	if _, err := fmt.Sscan(string(out), &addr, &word, &mac); err != nil {
		return nil, fmt.Errorf("neighbours of %s: %w: %s", pod, err, out)
	}
	return net.ParseMAC(mac)
}

// restartUnder is the loop of restarts, with all that runs meanwhile.
func (c config) restartUnder(w *testbed, k restart, probes []probe, jobs []work,
	r *restartRow) error {
	began := time.Now()
	far := began.Add(24 * time.Hour)
	over := make(chan struct{})
	var sentProbes atomic.Int64
	var passed passes
	probed := make(chan error, len(probes))
	for _, p := range probes {
		go func() { probed <- p.run(over, &sentProbes, &passed) }()
	}
	for sentProbes.Load() == 0 && len(probed) == 0 { // each may have to wait for its turn
		time.Sleep(time.Millisecond)
	}
	worked := make(chan []*tally, 1)
	go func() { worked <- together(w, jobs, far, over) }()
	refused := w.refused()
	var took []time.Duration
	var failure error
	for n := 1; n <= c.restarts && failure == nil; n++ {
		failure = c.restartOnce(w, k, n, &took)
	}
	r.why = difference(refused, w.refused())
	close(over)
	for range probes {
		failure = errors.Join(failure, <-probed)
	}
	for i, t := range <-worked {
		r.ok += t.ok.Load()
		r.failed += t.failed.Load()
		r.slow += t.slow.Load()
		if failed, slow := t.failed.Load(), t.slow.Load(); failed+slow > 0 {
			r.why += fmt.Sprintf(" %s: failed %d, late %d", jobs[i].name, failed, slow)
			if why := t.why.Load(); why != nil {
				r.why += fmt.Sprintf(", %v", why)
			}
		}
	}
	r.times, r.probes, r.passed = len(took), sentProbes.Load(), passed.count()
	r.why += passed.String()
	r.median, r.took = medianOf(took), time.Since(began)
	return failure
}

func (c config) restartOnce(w *testbed, k restart, n int, took *[]time.Duration) error {
	if err := w.agentNode.signal(k.end); err != nil {
		return err
	}
	if err := w.agentNode.write("etc/weir/weir.toml", weirSettings+k.settings(n)); err != nil {
		return err
	}
	w.agentNode.weir = k.binary(c, n)
	if k.killedInStart {
		if err := w.agentNode.killInStart(time.Duration(n%20) * 20 * time.Millisecond); err != nil {
			return err
		}
	}
	began := time.Now()
	if err := w.agentNode.start(); err != nil {
		return fmt.Errorf("start %d: %w", n, err)
	}
	*took = append(*took, time.Since(began))
	return nil
}

// run sends SYNs until over is closed, and some in any case. It counts the SYN-ACKs that come back:
// connections that would complete.
func (p probe) run(over <-chan struct{}, sent *atomic.Int64, passed *passes) error {
	return p.from.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK,
			int(htons(unix.ETH_P_IP)))
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP),
			Ifindex: i.Index}); err != nil {
			return err
		}
		src, random := netip.MustParseAddr(p.src), rand.New(rand.NewPCG(3, 4))
		addresses := append(append([]byte(nil), p.mac...), i.HardwareAddr...)
		b := make([]byte, 2048)
		for {
			for range 8 {
				syn := mustBuild(build.IPv4{Src: src, Dst: p.to},
					build.TCP{SrcPort: uint16(1024 + random.IntN(18000)),
						DstPort: p.ports[random.IntN(len(p.ports))], Seq: random.Uint32(),
						Flags: packet.FlagSYN, Window: 64240})
				if _, err := unix.Write(fd, frameOf(addresses, syn)); err != nil &&
					err != unix.ENOBUFS && err != unix.EAGAIN {
					return err
				}
				sent.Add(1)
			}
			for {
				n, err := unix.Read(fd, b)
				if err != nil || n <= 0 {
					break
				}
				var got packet.Packet
				if n > 14 && got.Decode(b[14:n]) == packet.ReasonNone && got.Src() == p.to &&
					got.TCPFlags&(packet.FlagSYN|packet.FlagACK) == packet.FlagSYN|packet.FlagACK &&
					slices.Contains(p.ports, got.SrcPort()) {
					passed.add(p.to, got.SrcPort())
				}
			}
			select {
			case <-over:
				return nil
			case <-time.After(time.Millisecond):
			}
		}
	})
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }
