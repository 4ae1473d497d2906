package test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

const tableSettings = `[states]
max = 64
per_source = 8
syn_cookies = false
[timeouts]
established = 3600
udp = 3600
`

const tableRules = `add 10 check-state
add 100 allow udp from any to me 1000 limit src-addr 2
add 200 allow tcp from any to me 8080 setup keep-state
add 300 allow udp from any to me 9 keep-state
add 400 allow log udp from any to me 7
`

// newTablePair is a client and a node with a small table. Behind the rules are an echo server and
// UDP ports on which neither a program nor the kernel answers.
func newTablePair(t *testing.T) *pair {
	t.Helper()
	p := newPair(t)
	p.start("--config", p.file("weir.toml", tableSettings), "--rules", p.file("rules", tableRules),
		"--iface", "eth0")
	echoes(t, p.server, 8080)
	for _, port := range []int{9, 1000} {
		c, err := p.server.ListenPacket("udp4", fmt.Sprintf("10.66.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
	}
	return p
}

// begin begins a flow, which stays open: a connection that is echoed, or one datagram.
func (p *pair) begin(network, address string, most time.Duration) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), most)
	defer cancel()
	return p.beginIn(ctx, network, address)
}

// beginIn is begin until a context ends.
func (p *pair) beginIn(ctx context.Context, network, address string) error {
	c, err := p.client.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	p.t.Cleanup(func() { c.Close() })
	if _, err = c.Write([]byte("x")); err == nil && network == "tcp" {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return err
}

// beginMany begins so many flows.
func (p *pair) beginMany(n int, network, address string) {
	p.t.Helper()
	for range n {
		if err := p.begin(network, address, testTimeout); err != nil {
			p.t.Fatal(err)
		}
	}
}

// TestStateTableViews: status, states and show report the same about the state table, as text and
// as JSON, and it is correct. They show how many states are in each pool, what was refused and why,
// how late the sweep is, and which events found the ring full. The table is small, a client drives
// it into every refusal, and the agent stands still for the last.
func TestStateTableViews(t *testing.T) {
	t.Parallel()
	p := newTablePair(t)
	p.beginMany(12, "tcp", "10.66.0.1:8080")
	p.beginMany(3, "udp", "10.66.0.1:1000") // one above the limit
	// two and six are as many as one source may have half-open: then the oldest give way
	p.beginMany(20, "udp", "10.66.0.1:9")
	eventually(t, "the sweep has gone round", func() error {
		if s := p.table(t); s.SweepLag <= 0 || s.SweepLag > 4 {
			return fmt.Errorf("its lag is %v s", s.SweepLag)
		}
		return nil
	})
	s := p.table(t, "12 established, 8 of 65536 half-open (8 of one source)",
		"packets refused a state: limit 1; 14 states evicted",
		"events lost in the kernel: 0", "table: 20 of 64 states;",
		"SYN cookies: none ([states] syn_cookies is false)")
	if s.States != 20 || s.Established != 12 || s.HalfOpen != 8 || s.StatesMax != 64 ||
		s.PerSource != 8 || len(s.Refused) != 1 || s.Refused["limit"] != 1 ||
		s.Evicted != 14 || s.EventsLost != 0 {
		t.Errorf("%+v", s)
	}
	p.fillTable()
	p.loseEvents()
}

// fillTable begins connections until the table has no space for more.
func (p *pair) fillTable() {
	t := p.t
	t.Helper()
	failed := uint64(0)
	for range 68 { // 80 in all; these from a source of their own
		if !p.beginOrRefused("[fd66::1]:8080") {
			failed++
		}
	}
	s := p.table(t)
	// The hash decides which two sets a flow may use. A half-open state stays when no flow came to
	// its sets.
	if s.Established < 40 || s.States > 67 || s.States != s.Established+s.HalfOpen ||
		s.Evicted+uint64(s.HalfOpen) != 22 || failed < 13 || s.Refused["states-full"] < failed ||
		s.Refused["limit"] != 1 {
		t.Errorf("%d connections of 80 were refused: %+v", failed, s)
	}
	p.table(t, fmt.Sprintf("table: %d of 64 states; %d established, %d of", s.States, s.Established,
		s.HalfOpen),
		fmt.Sprintf("limit 1, states-full %d; %d states evicted",
			s.Refused["states-full"], s.Evicted))
}

// beginOrRefused begins a connection, and reports false when a SYN of it was refused a state. That
// no answer comes within some time would not tell one from the other.
func (p *pair) beginOrRefused(address string) bool {
	p.t.Helper()
	refused := func() uint64 {
		var s api.Status
		p.json(&s, "status")
		return s.Table.Refused["states-full"]
	}
	before := refused()
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.beginIn(ctx, "tcp", address) }()
	for {
		select {
		case err := <-ended:
			cancel()
			if err != nil {
				p.t.Fatal(err)
			}
			return true
		case <-time.After(50 * time.Millisecond):
		}
		if refused() > before {
			cancel()
			<-ended // it sends no more
			return false
		}
	}
}

// loseEvents has more packets logged than the ring holds while the agent stands still.
func (p *pair) loseEvents() {
	t := p.t
	t.Helper()
	const logged = 40000
	p.agent.Process.Signal(syscall.SIGSTOP)
	c, err := p.client.DialContext(t.Context(), "udp4", "10.66.0.1:7")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent, before := uint64(0), missed(t, p)
	met := func() uint64 { return sent - (missed(t, p) - before) } // by the rules
	for met() < logged {
		for range 1000 {
			if _, err := c.Write([]byte("x")); err == nil {
				sent++
			} // else an ICMP error came, in its place: there is no listener
		}
	}
	p.agent.Process.Signal(syscall.SIGCONT)
	s := p.table(t)
	if all := met(); s.EventsLost < all/2 || s.EventsLost >= all {
		t.Errorf("of %d unread events %d were lost", all, s.EventsLost)
	}
	p.table(t, fmt.Sprintf("events lost in the kernel: %d", s.EventsLost))
}

// table returns the state table's figures from JSON, and wants the same in both outputs, and some
// words in each of the texts.
func (p *pair) table(t *testing.T, programOutput ...string) api.StateTable {
	t.Helper()
	var all [2]struct {
		Table api.StateTable `json:"table"`
	}
	for i, command := range [][]string{{"status"}, {"fw", "states"}} {
		p.json(&all[i], command...)
		// Of these alone one call may differ from the next.
		if a, b := &all[0].Table, &all[i].Table; fmt.Sprint(a.States, a.Established, a.HalfOpen,
			a.Refused, a.Evicted, a.EventsLost) !=
			fmt.Sprint(b.States, b.Established, b.HalfOpen, b.Refused, b.Evicted, b.EventsLost) {
			t.Errorf("weir status shows %+v, weir %v %+v", *a, command, *b)
		}
		text := p.weir(command...)
		for _, w := range append(programOutput, "sweep: no expired state is older than ") {
			if !strings.Contains(text, w) {
				t.Errorf("weir %v does not say %q:\n%s", command, w, text[max(0, len(text)-800):])
			}
		}
	}
	return all[0].Table
}
