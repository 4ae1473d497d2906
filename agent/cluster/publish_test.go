package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unicode/utf8"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// TestManyPods: a host with more pods than a transaction has bytes for, and even more than it may
// have chunks, writes all that it may.
func TestManyPods(t *testing.T) {
	const most = 128 * cluster.MaxChunkPods
	l := newLab(t)
	l.join("b", 2, "10.0.0.0/16")
	b := l.start("b", t.TempDir(), 2, newParts(), false)
	var pods []cluster.Pod
	for i := range most + 100 {
		p := pod(strings.Repeat("p", 200)+fmt.Sprint(i),
			fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
		p.Labels["app"] = strings.Repeat("x", 250)
		pods = append(pods, p)
	}
	b.SetPods(pods)
	written := func() (n int) {
		s, err := l.model.Read(t.Context(), cluster.PodsTree, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range s.Entries {
			of, err := cluster.Decode[cluster.Pods](e.Value)
			if err != nil {
				t.Fatal(err)
			}
			n += len(of.Pods)
		}
		return n
	}
	nstest.Eventually(t, fmt.Sprint(most, " pods are written"), func() bool {
		return written() == most
	})
	nstest.Eventually(t, "the report is written", func() bool { return l.reportOf("b").Weir != "" })
}

// TestShort: a report with the text of any error is one that others can read.
func TestShort(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 999) + "é", "a \xff line\nand\x1b[2J", ""} {
		got := short(errors.New(text))
		if !utf8.ValidString(got) || len(got) > 1024 || strings.ContainsAny(got, "\n\x1b") {
			t.Errorf("%q", got)
		}
		n := cluster.Number{Epoch: 1, Count: 1}
		value, err := cluster.Encode(&cluster.Report{Refused: &n, Why: got})
		if err == nil {
			_, err = cluster.Decode[cluster.Report](value)
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestForgedEndpoints: endpoints of a host that it has not signed count for nothing, neither their
// number nor that they are there. It writes its own again.
func TestForgedEndpoints(t *testing.T) {
	l := newLab(t)
	l.join("a", 1, "10.0.1.0/24")
	l.join("b", 2, "10.0.2.0/24")
	a := l.start("a", t.TempDir(), 1, newParts(), false)
	dir := t.TempDir()
	b := l.start("b", dir, 2, newParts(), false)
	at := func(port uint16) []netip.AddrPort {
		return []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"), port)}
	}
	announced := func(addrs []netip.AddrPort) {
		t.Helper()
		b.SetEndpoints(addrs)
		nstest.Eventually(t, fmt.Sprint("the endpoint ", addrs), func() bool {
			a.parts.mu.Lock()
			defer a.parts.mu.Unlock()
			return slices.Equal(a.parts.hosts["b"].Addrs, addrs)
		})
	}
	forge := func(sequence uint64, addrs []netip.AddrPort) {
		t.Helper()
		e := &cluster.Endpoints{Serial: cluster.Serial{2, 1}, Sequence: sequence, Addrs: addrs}
		if err := e.Sign("b", keyOf("attacker")); err != nil {
			t.Fatal(err)
		}
		forged := l.entry(cluster.EndpointKey+"b", e)
		l.commit(store.Txn{Put: []store.Entry{forged}})
		nstest.Eventually(t, "what is forged is replaced", func() bool {
			s, err := l.model.Read(t.Context(), forged.Key, 0)
			if err != nil {
				t.Fatal(err)
			}
			return len(s.Entries) == 1 && string(s.Entries[0].Value) != string(forged.Value)
		})
	}
	announced(at(1))
	forge(math.MaxUint64-1, at(9)) // the next would be the last
	announced(at(2))
	forge(math.MaxUint64, at(9)) // there is no next
	announced(at(3))
	forge(5, at(3)) // what the host would write
	b.stop()
	b = l.start("b", dir, 2, newParts(), false)
	announced(at(4))
}

// takenOver is a client of a weir-store that was taken over: it answers transactions and makes
// none.
type takenOver struct {
	*direct
	lies atomic.Bool
}

func (d *takenOver) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if d.lies.Load() {
		return 1 << 60, nil
	}
	return d.direct.Commit(ctx, t)
}

// TestAnsweredAndNotMade: what a host has written by a weir-store that made nothing of it is
// written again when that connection has ended.
func TestAnsweredAndNotMade(t *testing.T) {
	l, p := newLab(t), newParts()
	l.join("b", 2, "10.0.2.0/24")
	d := &takenOver{direct: newDirect(l.model, "b")}
	d.lies.Store(true)
	p.pods = []cluster.Pod{pod("x", "10.0.2.1")}
	log := slog.New(slog.DiscardHandler)
	b, err := Open(Config{Name: "b", Dir: t.TempDir(), Trust: l.trust(), Key: keyOf("b"),
		Serial: cluster.Serial{2, 1}, Client: d, Parts: p.parts(), Version: "test", Log: log,
		Stores: func() []netip.AddrPort { return nil }, Problems: &problem.List{Log: log},
		Random: func() float64 { return 0.01 }})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	nstest.Eventually(t, "the pod counts as written", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.own.pending) > 0
	})
	d.lies.Store(false)
	d.away(true)
	d.away(false)
	nstest.Eventually(t, "the pod is written", func() bool {
		s, err := l.model.Read(t.Context(), cluster.PodsTree+"b/", 0)
		if err != nil {
			t.Fatal(err)
		}
		return len(s.Entries) == 1
	})
}
