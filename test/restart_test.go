package test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// restartRules ask about names, globs, pods, labels and tables: each of the first four denies what
// the fifth allows, and the rest allow what nothing else does.
const restartRules = `
add 10 deny tcp from any to me 22 recv eth*
add 20 deny tcp from any to any 23 via pod:p1
add 30 deny tcp from any to table(role=closed) 24
add 40 deny tcp from table(outside) to me 25
add 45 check-state
add 50 allow tcp from any to any 22,23,24,25 setup keep-state
add 60 allow tcp from any to me 80 recv eth0 setup keep-state
add 70 allow tcp from any to table(app=web) 80 setup keep-state
add 75 allow tcp from any to any 81 in recv eth0 setup keep-state
add 80 allow tcp from any to any 81 via pod:p2 setup keep-state
add 90 allow tcp from table(guests) to me 26 setup keep-state
table outside add 10.66.0.0/24
table guests create
`

// restarts is a host with twelve pods, and clients that try all the time what is denied and what is
// allowed.
type restarts struct {
	*podHost
	patient bool // packets may be lost from now on
	denied  []*tries
	allowed []*tries
	servers []*nstest.Node // of allowed
	pause   sync.RWMutex   // held for reading while there is a connection to a port of allowed
	end     context.CancelFunc
	all     sync.WaitGroup
}

// tries are connections to one port, one after the other as fast as they can be made.
type tries struct {
	what, to     string
	made, failed atomic.Int64
	last         atomic.Pointer[error]
}

func newRestarts(t *testing.T, pods int) *restarts {
	t.Helper()
	need(t, "unshare", "nft")
	r := &restarts{podHost: newPodHost(t, restartRules)}
	serve := func(n *nstest.Node, ports ...int) {
		for _, port := range ports {
			l, err := n.Listen("tcp", fmt.Sprintf(":%d", port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go nstest.Echo(l)
		}
	}
	serve(r.host, 22, 25, 26, 80)
	var addrs []netip.Addr
	var nodes []*nstest.Node
	for i := range pods {
		label := "app=web"
		if i == 3 {
			label = "role=closed"
		}
		node, p := r.attach(fmt.Sprintf("p%d", i), "--label", label)
		serve(node, 23, 24, 80, 81)
		addrs, nodes = append(addrs, p.Addrs[0]), append(nodes, node)
	}
	r.servers = []*nstest.Node{r.host, nodes[0], nodes[2], nodes[len(nodes)-1]}
	for what, to := range map[string]string{
		"recv eth*": "10.66.0.1:22", "via pod:p1": addrs[1].String() + ":23",
		"a label": addrs[3].String() + ":24",
		"a table": "10.66.0.1:25", "an empty table": "10.66.0.1:26"} {
		r.denied = append(r.denied, &tries{what: what, to: to})
	}
	for what, to := range map[string]string{
		"recv eth0": "10.66.0.1:80", "a label": addrs[0].String() + ":80",
		"another of that label": addrs[len(addrs)-1].String() + ":80",
		"via pod:p2":            addrs[2].String() + ":81"} {
		r.allowed = append(r.allowed, &tries{what: what, to: to})
	}
	r.count()
	ctx, cancel := context.WithCancel(context.Background())
	r.end = cancel
	t.Cleanup(func() { cancel(); r.all.Wait() })
	for _, d := range r.denied {
		for range 2 {
			r.all.Go(func() { r.tryDenied(ctx, d) })
		}
	}
	for _, a := range r.allowed {
		r.all.Go(func() { r.tryAllowed(ctx, a) })
	}
	r.check("before")
	return r
}

// tryDenied connects to a port that never answers. A connection is made within a millisecond if it
// is made.
func (r *restarts) tryDenied(ctx context.Context, d *tries) {
	for ctx.Err() == nil {
		one, cancel := context.WithTimeout(ctx, 8*time.Millisecond)
		c, err := r.outside.DialContext(one, "tcp", d.to)
		cancel()
		d.made.Add(1)
		if err == nil {
			d.failed.Add(1)
			c.Close()
		}
	}
}

// tryAllowed makes connections that have to work.
func (r *restarts) tryAllowed(ctx context.Context, a *tries) {
	for ctx.Err() == nil {
		r.pause.RLock()
		err := r.one(ctx, a.to)
		r.pause.RUnlock()
		if ctx.Err() != nil {
			return
		}
		a.made.Add(1)
		if err != nil {
			a.failed.Add(1)
			a.last.Store(&err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (r *restarts) one(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	c, err := r.outside.DialContext(ctx, "tcp", to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(testTimeout))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err = io.ReadFull(c, make([]byte, 5))
	return err
}

// seen counts the packets to the allowed ports and the answers, where they begin and where they
// have passed the firewall. A packet that is sent again because the machine is busy comes, too.
const seen = `table inet seen {
	set ports { type ipv4_addr . inet_service; elements = { %s } }
	counter calls { }
	counter answers { }
	chain in { type filter hook input priority 0
		ip daddr . tcp dport @ports counter name calls
		ip saddr . tcp sport @ports counter name answers
	}
	chain out { type filter hook output priority 0
		ip daddr . tcp dport @ports counter name calls
		ip saddr . tcp sport @ports counter name answers
	}
}`

// count begins to count packets at the client and at the servers.
func (r *restarts) count() {
	var ports []string
	for _, a := range r.allowed {
		ports = append(ports, strings.Replace(a.to, ":", " . ", 1))
	}
	rules := r.file("seen.nft", fmt.Sprintf(seen, strings.Join(ports, ", ")))
	for _, n := range append(r.servers, r.outside) {
		n.Run("nft", "-f", rules)
	}
}

// counted returns how many calls and answers nodes have seen.
func counted(nodes ...*nstest.Node) (all [2]uint64, err error) {
	for _, n := range nodes {
		out, err := n.Command("nft", "-j", "list", "counters").Output()
		var list struct {
			NFTables []struct {
				Counter struct {
					Name    string
					Packets uint64
				}
			}
		}
		if err == nil {
			err = json.Unmarshal(out, &list)
		}
		if err != nil {
			return all, err
		}
		for _, object := range list.NFTables {
			switch object.Counter.Name {
			case "calls":
				all[0] += object.Counter.Packets
			case "answers":
				all[1] += object.Counter.Packets
			}
		}
	}
	return all, nil
}

// nothingLost waits until every packet to or from an allowed port has arrived.
func (r *restarts) nothingLost(when string) {
	r.t.Helper()
	r.pause.Lock()
	defer r.pause.Unlock()
	eventually(r.t, when+": every packet that is allowed arrives", func() error {
		client, err := counted(r.outside)
		if err != nil {
			return err
		}
		servers, err := counted(r.servers...)
		if err != nil {
			return err
		}
		if client != servers || client[0] == 0 {
			return fmt.Errorf("calls and answers: %d at the client, %d at the servers", client,
				servers)
		}
		return nil
	})
}

// check waits until each has tried some more, and reports what went wrong since the last call.
func (r *restarts) check(when string) {
	r.t.Helper()
	for _, w := range append(append([]*tries(nil), r.denied...), r.allowed...) {
		from := w.made.Load()
		eventually(r.t, w.what+" is tried", func() error {
			if n := w.made.Load() - from; n < 5 {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
	}
	for _, d := range r.denied {
		if n := d.failed.Swap(0); n > 0 {
			r.t.Errorf("%s: %d connections were made that %s denies", when, n, d.what)
		}
	}
	for _, a := range r.allowed {
		if n := a.failed.Swap(0); n > 0 {
			r.t.Errorf("%s: %d connections that %s allows failed: %v", when, n, a.what,
				*a.last.Load())
		}
	}
	if !r.patient {
		r.nothingLost(when)
	}
}

// table prints what was tried.
func (r *restarts) table() {
	for _, d := range r.denied {
		r.t.Logf("%-24s %8d denied", d.what, d.made.Load())
	}
	for _, a := range r.allowed {
		r.t.Logf("%-24s %8d allowed", a.what, a.made.Load())
	}
}

// TestRestartsOpenNothing restarts the agent in every way, with rules that name interfaces, pods,
// labels and tables, while denied ports are tried as fast as can be. None is open for a moment, and
// no packet is refused that the rules allow; between tables of different sizes no connection fails.
func TestRestartsOpenNothing(t *testing.T) {
	t.Parallel()
	restartsOpenNothing(t, 1, 2)
}

// TestLongRestartsOpenNothing makes more of each kind of restart.
func TestLongRestartsOpenNothing(t *testing.T) {
	t.Parallel()
	restartsOpenNothing(t, 6, 20)
}

// restartsOpenNothing restarts the agent a number of times in each way, and kills so many in their
// start.
func restartsOpenNothing(t *testing.T, times, inStart int) {
	t.Helper()
	r := newRestarts(t, 12)
	rules := filepath.Join(r.root, "etc/weir/rules")
	for range times {
		r.kill()
		r.start("--rules", rules)
		r.check("kill -9")
		r.stop()
		r.start("--rules", rules)
		r.check("SIGTERM")
	}
	r.kill()
	for i := range inStart {
		r.launch("--rules", rules)
		time.Sleep(time.Duration(i*7%60) * time.Millisecond)
		r.kill()
		r.check("kill -9 in a start")
	}
	r.file("etc/weir/rules", restartRules+"add 95 allow tcp from table(missing to me\n")
	for _, args := range [][]string{{"--rules", "/nowhere"},
		{"--iface", "eth*", "--config", "/nowhere"}} {
		r.refused(args...)
		r.check("a start that is refused")
	}
	r.start("--rules", rules)
	r.check("a rule file with a mistake")
	r.file("etc/weir/rules", restartRules)
	// From one engine to the other, interface by interface, a connection's first answer may come
	// where its first packet is not known yet.
	r.patient = true
	for i := range times {
		r.kill()
		r.file("etc/weir/weir.toml", podSettings+fmt.Sprintf("[states]\nmax = %d\n", 100000+i*1000))
		r.start("--rules", rules)
		r.check("tables of another size")
	}
	r.end()
	r.all.Wait()
	r.table()
	var status api.Status
	r.json(&status, "status")
	if !status.Healthy {
		t.Errorf("status: %+v", status.Problems)
	}
}

// refused starts an agent that has to end by itself.
func (g *agentNode) refused(args ...string) {
	g.t.Helper()
	if g.agent != nil {
		g.kill()
	}
	ready := g.launch(args...)
	select {
	case <-ready:
		g.t.Fatalf("weir up %s starts\n%s", strings.Join(args, " "), g.stderr)
	case err := <-g.done:
		g.agent = nil
		if err == nil {
			g.t.Errorf("weir up %s ends without an error", strings.Join(args, " "))
		}
	case <-time.After(testTimeout):
		g.t.Fatalf("weir up %s neither starts nor ends\n%s", strings.Join(args, " "), g.stderr)
	}
}
