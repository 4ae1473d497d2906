package watch

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/time/rate"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/packet"
)

func logged() *firewall.Event {
	return &firewall.Event{Kind: firewall.EventLog, Proto: packet.ProtoTCP,
		TCPFlags: 2, Length: 60, Src: netip.MustParseAddrPort("192.0.2.1:4000"),
		Dst:     netip.MustParseAddrPort("192.0.2.2:80"),
		Verdict: firewall.Verdict{Rule: 100, Slot: 3}, Hook: firewall.Hook{Recv: 7}}
}

func TestEntry(t *testing.T) {
	e := observe.Event{Event: *logged(), Recv: "eth0", From: "pod:a\nWEIR_RULE=7", Service: "http"}
	message, fields := entry(&e, "prob 0.5 deny log tcp from any to any // a comment")
	if message != "100 deny tcp 192.0.2.1:4000 192.0.2.2:80 in via eth0" {
		t.Error(message)
	}
	for name, want := range map[string]string{"WEIR_RULE": "100", "WEIR_ACTION": "deny",
		"WEIR_RULE_TEXT": "prob 0.5 deny log tcp from any to any // a comment",
		"WEIR_PROTO":     "tcp", "WEIR_DIRECTION": "in", "WEIR_RECV": "eth0", "WEIR_XMIT": "",
		"WEIR_SRC": "192.0.2.1", "WEIR_SRC_PORT": "4000", "WEIR_DST": "192.0.2.2",
		"WEIR_DST_PORT": "80", "WEIR_TCP_FLAGS": "S", "WEIR_LENGTH": "60", "WEIR_SERVICE": "http",
		"WEIR_SRC_NAME": "pod:a\nWEIR_RULE=7", "SYSLOG_IDENTIFIER": "weir"} {
		if fields[name] != want {
			t.Errorf("%s is %q, not %q", name, fields[name], want)
		}
	}
	bare := observe.Event{Event: firewall.Event{Kind: firewall.EventLog, Proto: 1,
		Src: netip.MustParseAddrPort("[fe80::1]:0"), Dst: netip.MustParseAddrPort("[fe80::2]:0"),
		Hook: firewall.Hook{Dir: firewall.Out}}, Xmit: "eth1"}
	if message, fields := entry(&bare, ""); message != "0 icmp fe80::1 fe80::2 out via eth1" ||
		fields["WEIR_SRC_PORT"] != "" {
		t.Error(message, fields)
	}
}

// TestLogIsBounded: neither more packets than the journal may get, nor a journal that hangs or
// fails, holds the packet path up. What is left out is counted, and the next entry mentions it.
func TestLogIsBounded(t *testing.T) {
	hang, sent := make(chan struct{}), make(chan map[string]string, 8192)
	began := make(chan struct{}, 8192)
	var fails atomic.Bool
	j := &journald{queue: make(chan firewall.Event, 4), limit: rate.NewLimiter(0, 20),
		describe: func(ev *firewall.Event) (observe.Event, string) {
			return observe.Event{Event: *ev}, "deny log ip from any to any"
		},
		send: func(_ string, _ journal.Priority, fields map[string]string) error {
			began <- struct{}{}
			<-hang
			var err error
			if fails.Load() {
				err = errors.New("no journal")
			}
			sent <- fields // last: the test changes what fails when it has them
			return err
		}}
	go j.run(t.Context())
	j.put(&firewall.Event{Kind: firewall.EventDrop})
	j.put(logged())
	<-began
	for range 29 {
		j.put(logged())
	}
	if got := j.skipped.Load(); got != 25 {
		t.Errorf("%d left out, not 25: 30 packets, 1 being written, 4 waiting", got)
	}
	close(hang)
	var missed []string
	for range 5 {
		missed = append(missed, (<-sent)["WEIR_MISSED"])
	}
	if got := strings.Join(missed, ","); got != ",25,,," {
		t.Errorf("missed %q", got)
	}
	fails.Store(true)
	j.limit = rate.NewLimiter(rate.Inf, 1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	j.run(ctx) // ends
	j.put(logged())
	<-sent
	for j.skipped.Load() != 26 {
		time.Sleep(time.Millisecond)
	}
	var none *journald
	none.put(logged())
}
