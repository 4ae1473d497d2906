package test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
)

// wrk is a real HTTP client under full load.
type wrk struct {
	out  bytes.Buffer
	kill func()
	done chan error
}

// load starts wrk for some time against nginx at the server. It takes what others leave of the
// machine.
func (p *pair) load(t *testing.T, args ...string) *wrk {
	t.Helper()
	return p.loadBy(t, []string{"wrk"}, args...)
}

// loadBy is load with the command that starts wrk.
func (p *pair) loadBy(t *testing.T, command []string, args ...string) *wrk {
	t.Helper()
	w := &wrk{}
	args = slices.Concat([]string{"-n", "10"}, command, []string{"--timeout", "600s"}, args)
	cmd := p.client.Command("nice", append(args, "http://10.66.0.1/")...)
	cmd.Stdout, cmd.Stderr = &w.out, &w.out
	w.done = background(t, cmd)
	w.kill = func() { cmd.Process.Signal(os.Interrupt) } // it sums up then
	return w
}

var (
	wrkRequests = regexp.MustCompile(`(\d+) requests in`)
	wrkErrors   = regexp.MustCompile(`Socket errors|Non-2xx`)
)

// requests waits for the end and returns how many requests were answered; none may have failed.
func (w *wrk) requests(t *testing.T) int {
	t.Helper()
	if err := <-w.done; err != nil {
		t.Fatalf("wrk: %v\n%s", err, w.out.String())
	}
	found := wrkRequests.FindStringSubmatch(w.out.String())
	if found == nil || wrkErrors.MatchString(w.out.String()) {
		t.Fatalf("wrk:\n%s", w.out.String())
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// beat is a connection over which a byte goes there and back all the time.
type beat struct {
	conn  net.Conn
	stop  chan struct{}
	ended chan error
	count atomic.Int64
}

func (p *pair) beat(t *testing.T, port int) *beat {
	t.Helper()
	l, err := p.server.Listen("tcp", fmt.Sprintf("10.66.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(c, c)
			c.Close()
		}
	}()
	b := &beat{stop: make(chan struct{}), ended: make(chan error, 1)}
	if b.conn, err = p.client.DialContext(t.Context(), "tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.conn.Close() })
	go func() { b.ended <- b.run() }()
	return b
}

func (b *beat) run() error {
	one := make([]byte, 1)
	for {
		select {
		case <-b.stop:
			return nil
		case <-time.After(5 * time.Millisecond):
		}
		b.conn.SetDeadline(time.Now().Add(testTimeout))
		if _, err := b.conn.Write(one); err != nil {
			return err
		}
		if _, err := io.ReadFull(b.conn, one); err != nil {
			return err
		}
		b.count.Add(1)
	}
}

// served is how many connections nginx at a node has accepted and how many requests it has got.
func served(t *testing.T, node *nstest.Node) (connections, requests int64) {
	t.Helper()
	out, err := get(node, "http://127.0.0.1/status")
	if err != nil {
		t.Fatal(err)
	}
	_, counts, _ := strings.Cut(out, "requests\n")
	var handled int64
	if _, err := fmt.Sscan(counts, &connections, &handled, &requests); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	return connections, requests
}

// loadContinues waits for so many more connections of one request each, as many more requests on
// connections that continue, and a tenth as many beats.
func (p *pair) loadContinues(t *testing.T, b *beat, more int64) {
	t.Helper()
	beats := b.count.Load()
	connections, requests := served(t, p.server)
	asked := int64(0)
	eventually(t, "the load continues", func() error {
		nowConnections, nowRequests := served(t, p.server)
		asked++
		fresh := nowConnections - connections - asked
		kept := nowRequests - requests - (nowConnections - connections)
		beaten := b.count.Load() - beats
		if fresh < more || kept < more || beaten < more/10 {
			return fmt.Errorf("%d connections, %d requests on old ones, %d beats", fresh, kept,
				beaten)
		}
		return nil
	})
}

// TestKills kills the agent at any moment of its start and its work, under load. There are new
// connections all the time, old ones that continue, and one that lasts all the time. Not one
// request may fail.
func TestKills(t *testing.T) {
	t.Parallel()
	killUnderLoad(t, 4)
}

// TestLongKills does it more often.
func TestLongKills(t *testing.T) {
	t.Parallel()
	killUnderLoad(t, 40)
}

func killUnderLoad(t *testing.T, kills int) {
	t.Helper()
	need(t, "nginx", "wrk", "curl")
	p := newPair(t)
	nginx(t, p.server, 80, 82)
	rules := p.file("rules",
		"add 1 check-state\nadd 100 allow tcp from any to me 80,81 in setup keep-state\n")
	began := time.Now()
	p.start("--iface", "eth0", "--rules", rules)
	whole := time.Since(began)
	short := p.load(t, "-t1", "-c8", "-d10h", "-H", "Connection: close")
	long := p.load(t, "-t1", "-c4", "-d10h")
	b := p.beat(t, 81)
	more := int64(1000 / kills) // of the load, for each kill
	p.loadContinues(t, b, more)
	p.kill()
	ready := 0
	for i := range kills {
		up := p.launch("--iface", "eth0", "--rules", rules)
		moment := whole * time.Duration(i*37%100) / 100 // of its start
		if i%4 == 0 {                                   // or of its work
			select {
			case <-up:
			case err := <-p.done:
				t.Fatalf("start %d: the agent ended: %v\n%s", i, err, p.stderr)
			case <-time.After(testTimeout):
				t.Fatalf("start %d: not ready after a long time\n%s", i, p.stderr)
			}
			moment /= 4
		}
		time.Sleep(moment)
		select {
		case <-up:
			ready++
		default:
		}
		p.kill()
		p.loadContinues(t, b, more)
	}
	p.start("--iface", "eth0", "--rules", rules)
	refuse(t, p.client, "http://10.66.0.1:82/")
	short.kill()
	long.kill()
	close(b.stop)
	if err := <-b.ended; err != nil {
		t.Errorf("the connection that lived through it all: after %d beats: %v", b.count.Load(),
			err)
	}
	fresh, kept := short.requests(t), long.requests(t)
	t.Logf("%d of %d agents were ready before they were killed; %d connections and %d requests on "+
		"old ones, none failed; %d beats", ready, kills, fresh, kept, b.count.Load())
	var status api.Status
	p.json(&status, "status")
	if !status.TakenOver || !status.Healthy {
		t.Errorf("status: %+v", status)
	}
	noDrops(t, status)
}

// noDrops makes sure that nothing was refused because of full tables or strange numbers. Resets do
// not count. A stack whose program is killed answers each segment that was on its way, also one
// that is older than the last acknowledgement of the other end. That end would ignore such a reset,
// too (RFC 5961 section 3.2).
func noDrops(t *testing.T, status api.Status) {
	t.Helper()
	for _, reason := range []firewall.Reason{firewall.ReasonLimit, firewall.ReasonStatesFull,
		firewall.ReasonHalfOpenFull, firewall.ReasonTCPFlags, firewall.ReasonTCPAck,
		firewall.ReasonTCPWindow} {
		if n := status.Reasons[reason.String()]; n > 0 {
			t.Errorf("%d packets dropped: %s", n, reason)
		}
	}
}

// TestLongPortsAreUsedAgain opens connections to one port as fast as this machine can, from 200
// ports, so that each port is used again within moments of its last use. A state that is closed
// gives way to the next. At 30,000 connections a second from all ports that a client has by default
// each would come again after 0.94 s. Here, through real stacks, it does so sooner, and
// firewall/kernel has the rate itself. A busy machine gets more than one turn to be that fast; no
// turn may have a refusal. Each turn has ports of its own: wrk ends its turn with open connections,
// and what their server still sends is refused in a connection that took the port meanwhile. Both
// programs have one CPU, on which no packet of a connection overtakes another: what comes after the
// SYN of the next connection is refused, too.
func TestLongPortsAreUsedAgain(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "wrk")
	p := newPair(t)
	nginxWith(t, p.server, "worker_cpu_affinity auto;", 80) // the first
	p.start("--iface", "eth0", "--rules", webRules(t))
	p.client.Sysctl("net.ipv4.tcp_tw_reuse", "1") // where wrk was the first to close
	const ports, seconds = 200, 8
	first := 10000
	eventually(t, "ports are used again soon enough", func() error {
		p.client.Sysctl("net.ipv4.ip_local_port_range", fmt.Sprint(first, first+ports-1))
		first += ports
		n := p.loadBy(t, []string{"taskset", "-c", "0", "wrk"}, "-t1", "-c20",
			fmt.Sprintf("-d%ds", seconds), "-H", "Connection: close").requests(t)
		t.Logf("%d connections, %d per second, from %d ports", n, n/seconds, ports)
		if again := float64(seconds) * ports / float64(n); again > 28232./30000 {
			return fmt.Errorf("%d connections are too few: a port comes again after %.2f s", n,
				again)
		}
		return nil
	})
	var status api.Status
	p.json(&status, "status")
	noDrops(t, status)
}
