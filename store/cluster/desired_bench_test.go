package cluster

import (
	"bytes"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
)

// remotePods is a cluster of hosts with some pods each, in chunks, as changes.
func remotePods(b *testing.B, hosts, each int) (certs, chunks []store.Change) {
	b.Helper()
	a := newAuthority()
	for h := range hosts {
		name := fmt.Sprint("h", h)
		ranges := netip.AddrFrom4([4]byte{10, byte(h >> 8), byte(h), 0})
		n := a.node(b, name, netip.PrefixFrom(ranges, 24).String())
		n.Labels = []string{"app", "tier"}
		certs = append(certs, put(b, NodeTree+name, a.sign(b, n)))
		var pods []Pod
		for i := range each {
			pods = append(pods, Pod{Name: fmt.Sprintf("k8s-%d/web-%08x", i, h*h*i),
				Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, byte(h >> 8), byte(h),
					byte(i + 1)})},
				Labels: map[string]string{"app": fmt.Sprint("app-", i%10), "tier": "front"}})
		}
		puts, err := PodChunkPuts(name, nil, pods)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range puts {
			chunks = append(chunks, store.Change{Entry: p})
		}
	}
	return certs, chunks
}

// BenchmarkRemotePods measures what a host keeps of 10,000 pods of 1,000 other hosts, all of it:
// the values, the copy with its guard, and what the checks have. Target: 300 bytes for each. And
// the time for each, when they all come at once.
func BenchmarkRemotePods(b *testing.B) {
	a := newAuthority()
	certs, chunks := remotePods(b, 1000, 10)
	var before, after runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		copied := store.NewGuarded(Guard(), store.Snapshot{})
		d := NewDesired("a", a.trust, nil)
		d.Apply(certs)
		runtime.GC()
		runtime.ReadMemStats(&before)
		come := slices.Clone(chunks) // as if it had just come
		for i, ch := range chunks {
			come[i].Key, come[i].Value = strings.Clone(ch.Key), bytes.Clone(ch.Value)
		}
		b.StartTimer()
		if e := d.Apply(copied.Step(store.Batch{Revision: 1, Changes: come})); len(e.Labels) !=
			20000 || len(e.Claims) > 0 {
			b.Fatal(len(e.Labels), e.Claims)
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10000, "B/pod")
		runtime.KeepAlive(d)
		runtime.KeepAlive(copied)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10000, "ns/pod")
}

// BenchmarkPodChange measures the change of one pod in a full chunk, among 10,000.
func BenchmarkPodChange(b *testing.B) {
	a := newAuthority()
	certs, chunks := remotePods(b, 100, 100)
	d := NewDesired("a", a.trust, nil)
	d.Apply(certs)
	d.Apply(chunks)
	p, err := Decode[Pods](chunks[0].Value)
	if err != nil {
		b.Fatal(err)
	}
	p.Pods[0].Labels["app"] = "other"
	changed := put(b, chunks[0].Key, &p)
	for b.Loop() {
		if e := d.Apply([]store.Change{changed}); len(e.Labels) != 2 {
			b.Fatal(e)
		}
		changed, chunks[0] = chunks[0], changed
	}
}
