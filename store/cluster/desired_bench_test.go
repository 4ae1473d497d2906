package cluster

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/weirnet/weir/store"
)

// remotePods is a cluster of 100 hosts with 100 pods each, in chunks, as changes.
func remotePods(b *testing.B) (certs, chunks []store.Change) {
	b.Helper()
	a := newAuthority()
	for h := range 100 {
		name := fmt.Sprint("h", h)
		certs = append(certs, put(b, NodeTree+name,
			a.node(b, name, fmt.Sprintf("10.%d.0.0/24", h))))
		var pods []Pod
		for i := range 100 {
			pods = append(pods, Pod{Name: fmt.Sprint("pod-", i),
				Addrs:  []netip.Addr{netip.AddrFrom4([4]byte{10, byte(h), 0, byte(i + 1)})},
				Labels: map[string]string{"app": fmt.Sprint("app-", i%10)}})
		}
		puts, err := PlacePods(name, nil, pods)
		if err != nil {
			b.Fatal(err)
		}
		for _, p := range puts {
			chunks = append(chunks, store.Change{Entry: p})
		}
	}
	return certs, chunks
}

// BenchmarkRemotePods measures what 10,000 pods of other hosts take of a host beside the copy
// itself: bytes and time for each, when they all come at once.
func BenchmarkRemotePods(b *testing.B) {
	a := newAuthority()
	certs, chunks := remotePods(b)
	var before, after runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		d := NewDesired("a", a.trust, nil)
		d.Apply(certs)
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		d.Apply(chunks)
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/10000, "B/pod")
		runtime.KeepAlive(d)
		b.StartTimer()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10000, "ns/pod")
}

// BenchmarkPodChange measures the change of one pod in a full chunk, among 10,000.
func BenchmarkPodChange(b *testing.B) {
	a := newAuthority()
	certs, chunks := remotePods(b)
	d := NewDesired("a", a.trust, nil)
	d.Apply(certs)
	d.Apply(chunks)
	p, err := Decode[Pods](chunks[0].Value)
	if err != nil {
		b.Fatal(err)
	}
	p.Pods[0].Labels = map[string]string{"app": "other"}
	changed := put(b, chunks[0].Key, &p)
	for b.Loop() {
		if e := d.Apply([]store.Change{changed}); len(e.Labels) != 2 {
			b.Fatal(e)
		}
		changed, chunks[0] = chunks[0], changed
	}
}
