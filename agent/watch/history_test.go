package watch

import (
	"fmt"
	"maps"
	"reflect"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
)

// testHistory is a history whose clock the test turns, with counters that grow.
type testHistory struct {
	*history
	now time.Duration
	counts
}

func newTestHistory() *testHistory {
	h := &testHistory{history: newHistory(func(index int, number uint16) string {
		return fmt.Sprintf("rule %d at %d", number, index)
	}), now: time.Hour}
	h.decisions = map[firewall.Decision]firewall.Count{}
	return h
}

// sample takes a sample after some seconds.
func (h *testHistory) sample(seconds int) {
	h.now += time.Duration(seconds) * time.Second
	before := maps.Clone(h.decisions) // the engine makes a new map each time
	h.take(h.now, counts{before, append([]firewall.RuleCounter{}, h.counts.rules...),
		append([]api.Pod{}, h.counts.pods...)})
}

func (h *testHistory) see(since uint64) api.History {
	return h.view(since, func(t time.Duration) time.Time { return time.Unix(0, int64(t)) })
}

var (
	passesIn  = firewall.Decision{Pass: true, Reason: firewall.ReasonRule}
	passesOut = firewall.Decision{Dir: firewall.Out, Pass: true, Reason: firewall.ReasonRule}
	denied    = firewall.Decision{Reason: firewall.ReasonRule}
	misfit    = firewall.Decision{Reason: firewall.ReasonTCPWindow}
)

// TestHistoryOfAnHour: an hour and a bit: the last hour is there, each value at its sample. Who
// asks for what is new gets the same values as who asks for all.
func TestHistoryOfAnHour(t *testing.T) {
	h := newTestHistory()
	h.counts.rules = []firewall.RuleCounter{{Key: 7, Number: 100, Packets: 1000, Bytes: 5},
		{Key: 8, Number: 200}, {Key: 9, Number: 65535, Packets: 3}}
	h.counts.pods = []api.Pod{{Container: "c", IfName: "eth0", Name: "web",
		Bytes: [2]uint64{9, 9}}}
	h.sample(5) // what was counted before is not of this hour
	const samples = 800
	for i := range samples {
		h.decisions[passesIn] = firewall.Count{Packets: uint64(i), Bytes: uint64(i) * 100}
		h.decisions[passesOut] = firewall.Count{Packets: uint64(2 * i), Bytes: uint64(i) * 300}
		h.decisions[denied] = firewall.Count{Packets: uint64(3 * i)}
		if i == 700 {
			h.decisions[misfit] = firewall.Count{Packets: 4}
		}
		h.counts.rules[0].Packets += uint64(i)
		h.counts.rules[0].Bytes += uint64(i) * 10
		h.counts.pods[0].Bytes[0] += 50
		h.counts.pods[0].Drops[1] += 2
		h.sample(5)
	}
	a := h.see(0)
	if a.First != samples-sampleCount || len(a.Times) != sampleCount ||
		len(a.Seconds) != sampleCount {
		t.Fatalf("first %d, %d times", a.First, len(a.Times))
	}
	for i := range a.Times {
		n := int(a.First) + i
		if a.Seconds[i] != 5 || a.Times[i] != 3610+float64(5*n) {
			t.Fatalf("sample %d is at %v and covers %v s", n, a.Times[i], a.Seconds[i])
		}
		if got, want := [...]float32{a.Traffic.PacketsIn[i], a.Traffic.BytesIn[i],
			a.Traffic.PacketsOut[i], a.Traffic.BytesOut[i], a.Rules[0].Packets[i],
			a.Rules[0].Bytes[i], a.Pods[0].BytesIn[i], a.Pods[0].Dropped[i]},
			[...]float32{1, 100, 2, 300, float32(n), float32(n * 10), 50, 2}; got != want {
			t.Fatalf("sample %d: %v, want %v", n, got, want)
		}
		misfits := float32(0)
		if n == 700 {
			misfits = 4
		}
		if a.Dropped[0].Packets[i] != 3 || a.Dropped[1].Packets[i] != misfits ||
			a.Traffic.Dropped[i] != 3+misfits {
			t.Fatalf("sample %d: dropped %v", n, a.Traffic.Dropped[i])
		}
	}
	if len(a.Rules) != 1 || a.Rules[0].Text != "rule 100 at 0" || a.Dropped[0].Reason != "rule" ||
		a.Dropped[1].Reason != "tcp-window" || a.Pods[0].Name != "web" {
		t.Errorf("%+v %+v %+v", a.Rules, a.Dropped, a.Pods)
	}
	b := h.see(samples - 3)
	if b.First != samples-3 || len(b.Times) != 3 || len(b.Dropped) != 1 ||
		!reflect.DeepEqual(b.Rules[0].Packets, a.Rules[0].Packets[sampleCount-3:]) {
		t.Errorf("the last three are %+v", b)
	}
	if c := h.see(samples); c.First != samples || len(c.Times) != 0 || len(c.Rules) != 0 {
		t.Errorf("of the future there is %+v", c)
	}
	if c := h.see(samples + 99); c.First != samples {
		t.Errorf("behind the end begins %d", c.First)
	}
	// an hour of silence
	for range sampleCount {
		h.sample(5)
	}
	if a := h.see(0); len(a.Rules)+len(a.Pods)+len(a.Dropped) != 0 {
		t.Errorf("after an hour of silence there is %+v", a)
	}
	if rules, pods, left := h.series(); rules+pods != 0 || left != 0 {
		t.Errorf("after an hour of silence %d rules and %d pods are kept, %d left out", rules, pods,
			left)
	}
}

// TestHistoryOfCountersThatBeginAgain: counters that were set to 0 or are of a new rule count from
// 0, and so do those of a rule that came back. A sample that was late covers more seconds.
func TestHistoryOfCountersThatBeginAgain(t *testing.T) {
	h := newTestHistory()
	h.counts.rules = []firewall.RuleCounter{{Key: 1, Number: 1, Packets: 100}}
	h.sample(5)
	h.counts.rules = []firewall.RuleCounter{{Key: 1, Number: 1, Packets: 7},
		{Key: 2, Number: 2, Packets: 30}}
	h.sample(5)
	h.counts.rules = h.counts.rules[:1]
	h.sample(20)
	h.counts.rules = []firewall.RuleCounter{{Key: 1, Number: 1, Packets: 8},
		{Key: 2, Number: 2, Packets: 30}}
	h.sample(5)
	h.now -= 5 * time.Second // the same moment again: nothing
	h.sample(5)
	a := h.see(0)
	if got := fmt.Sprint(a.Seconds, a.Rules[0].Packets, a.Rules[1].Packets); got !=
		"[5 20 5] [7 0 1] [30 0 30]" {
		t.Errorf("got %s", got)
	}
}

// TestHistoryIsBounded: of more rules than there is space for, those that come first are kept, the
// others are one series, and nothing is lost from the sum. One that is silent for a minute makes
// space.
func TestHistoryIsBounded(t *testing.T) {
	h := newTestHistory()
	const rules = 1000
	h.counts.rules = make([]firewall.RuleCounter, rules)
	for i := range h.counts.rules {
		h.counts.rules[i] = firewall.RuleCounter{Key: uint64(i + 1), Number: uint16(i + 1)}
	}
	h.sample(5)
	hit := func(from, to int) {
		for i := from; i < to; i++ {
			h.counts.rules[i].Packets++
		}
		h.sample(5)
	}
	sum := func(n int) (all float32) {
		a := h.see(0)
		for _, r := range a.Rules {
			all += r.Packets[n]
		}
		return all + a.Others.RulePackets[n]
	}
	for n := range 3 {
		hit(0, rules)
		if got := sum(n); got != rules {
			t.Errorf("sample %d counts %v packets, want %d", n, got, rules)
		}
	}
	kept, _, left := h.series()
	if kept != maxSeries || left != 3*(rules-maxSeries) {
		t.Errorf("%d rules are kept, %d samples left out", kept, left)
	}
	for range silentSamples {
		hit(0, maxSeries-1) // all but one that are kept
	}
	hit(rules-2, rules)
	a := h.see(0)
	if last := a.Rules[len(a.Rules)-1].Number; len(a.Rules) != maxSeries || last < rules-1 {
		t.Errorf("%d rules, the last one is %d", len(a.Rules), last)
	}
	if got := sum(3 + silentSamples); got != 2 {
		t.Errorf("the last sample counts %v packets", got)
	}
}

// BenchmarkHistory takes a sample of 10,000 rules and 250 pods, all of them busy.
func BenchmarkHistory(b *testing.B) {
	h := newTestHistory()
	h.counts.rules = make([]firewall.RuleCounter, 10_000)
	h.counts.pods = make([]api.Pod, 250)
	for b.Loop() {
		for i := range h.counts.rules {
			h.counts.rules[i].Key = uint64(i)
			h.counts.rules[i].Packets++
		}
		for i := range h.counts.pods {
			h.counts.pods[i].Container = fmt.Sprint(i)
			h.counts.pods[i].Bytes[0]++
		}
		h.sample(5)
	}
}
