package cluster

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
)

// TestPodChunkPuts: after any changes the chunks have exactly the pods that there are, others
// accept them, and one changed pod rewrites one chunk.
func TestPodChunkPuts(t *testing.T) {
	a := newAuthority()
	n := a.node(t, "b", "10.0.0.0/16")
	random := rand.New(rand.NewPCG(1, 2))
	have, pods := map[string][]byte{}, map[string]Pod{}
	for step := range 200 {
		changed := 0
		for range 1 + random.IntN(1+step%40) {
			name := fmt.Sprint("p", random.IntN(150))
			if _, there := pods[name]; there && random.IntN(2) == 0 {
				delete(pods, name)
			} else {
				i := random.IntN(1 << 16)
				addr := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
				pods[name] = Pod{Name: name, Addrs: []netip.Addr{addr},
					Labels: map[string]string{"app": fmt.Sprint(random.IntN(3))}}
			}
			changed++
		}
		var all []Pod
		for _, p := range pods {
			all = append(all, p)
		}
		puts, err := PodChunkPuts("b", have, all)
		if err != nil {
			t.Fatal(err)
		}
		if changed == 1 && len(puts) > 1 {
			t.Fatalf("step %d: one change writes %d chunks", step, len(puts))
		}
		for _, p := range puts {
			if bytes.Equal(have[p.Key], p.Value) && have[p.Key] != nil {
				t.Fatalf("step %d: %s is written without a change", step, p.Key)
			}
			have[p.Key] = p.Value
		}
		got := map[string]Pod{}
		for key, value := range have {
			if len(value) == 0 {
				continue
			}
			chunk, err := Decode[Pods](value)
			if err != nil || !strings.HasPrefix(key, PodsTree+"b/") {
				t.Fatalf("%s: %v", key, err)
			}
			for i, p := range chunk.Pods {
				if _, twice := got[p.Name]; twice || n.mayHave(&chunk.Pods[i]) != nil {
					t.Fatalf("pod %s is there twice, or refused", p.Name)
				}
				got[p.Name] = p
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(pods) {
			t.Fatalf("step %d: %v, want %v", step, got, pods)
		}
	}
}

// TestAllowedPod: what others would refuse, and with it the other pods of the chunk, is not
// written.
func TestAllowedPod(t *testing.T) {
	n := newAuthority().node(t, "b", "10.0.2.0/24")
	longest := strings.Repeat("x", maxLabel-len("k="))
	long := longest + "x"
	p, ok := n.AllowedPod(&Pod{Name: "two words", Addrs: []netip.Addr{
		netip.MustParseAddr("10.0.2.1"), netip.MustParseAddr("192.0.2.1")},
		Labels: map[string]string{"app": "web", "role": "db"}})
	if !ok || len(p.Addrs) != 1 || len(p.Labels) != 1 || p.Labels["app"] != "web" ||
		p.check() != nil ||
		n.mayHave(&p) != nil {
		t.Errorf("%+v, %v", p, ok)
	}
	n.Labels = []string{AnyLabel}
	labels := map[string]string{"a=b": "c", "ok": "1", "blank": "a b", "l": long, long: "a",
		"": "x", "k": longest}
	if p, _ := n.AllowedPod(&Pod{Name: "p", Addrs: p.Addrs, Labels: labels}); len(p.Labels) != 2 ||
		p.check() != nil {
		t.Errorf("%+v", p)
	}
	p.Labels["l"] = long // rules cannot write the name of its table
	if p.check() == nil {
		t.Error("a label of 64 bytes is accepted")
	}
	delete(p.Labels, "l")
	if _, ok := n.AllowedPod(&Pod{Name: "p",
		Addrs: []netip.Addr{netip.MustParseAddr("10.0.3.1")}}); ok {
		t.Error("a pod without an address of the host is allowed")
	}
	if p.Labels["app"] != "web" {
		t.Errorf("labels %v", p.Labels)
	}
}

// TestChunksOfLargePods: pods with all that they may have are placed as others are, in chunks that
// a host may write. So one with large labels does not end the news of all. Those that have no place
// do not keep the others out.
func TestChunksOfLargePods(t *testing.T) {
	var pods []Pod
	for i := range 40 {
		p := Pod{Name: fmt.Sprint("p", i), Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0,
			byte(i)})}, Labels: map[string]string{}}
		for l := range maxPodLabels {
			p.Labels[strings.Repeat("<", 30)+fmt.Sprintf("%02d", l)] =
				strings.Repeat(">", maxLabel-33)
		}
		pods = append(pods, p)
	}
	have, found := map[string][]byte{}, 0
	for range 2 {
		puts, err := PodChunkPuts("b", have, pods)
		if err != nil {
			t.Fatal(err)
		}
		if err := HostMayWrite("b", store.Txn{Put: puts}); err != nil {
			t.Error(err)
		}
		found = 0
		for _, p := range puts {
			chunk, err := Decode[Pods](p.Value)
			if err != nil {
				t.Fatal(err)
			}
			have[p.Key], found = p.Value, found+len(chunk.Pods)
		}
		if found != len(pods) {
			t.Errorf("%d of %d pods are placed", found, len(pods))
		}
		clear(have)
		for _, p := range puts { // small ones grow where they are
			of := Pods{Pods: []Pod{}}
			for _, pod := range pods {
				of.Pods = append(of.Pods, Pod{Name: pod.Name, Addrs: pod.Addrs})
				if len(of.Pods) == MaxChunkPods {
					break
				}
			}
			slices.SortFunc(of.Pods, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
			value, err := Encode(&of)
			if err != nil {
				t.Fatal(err)
			}
			have[p.Key] = value
			break
		}
	}
	var many []Pod
	for i := range maxChunks*MaxChunkPods + 7 {
		many = append(many, Pod{Name: fmt.Sprint("p", i), Addrs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}})
	}
	have = map[string][]byte{PodsTree + "b/9999": []byte("1"), PodsTree + "b/x": []byte("1")}
	puts, err := PodChunkPuts("b", have, many)
	if err == nil || !strings.Contains(err.Error(), "7 of 4103 pods") || len(puts) != maxChunks ||
		HostMayWrite("b", store.Txn{Put: puts}) != nil {
		t.Errorf("%d chunks, %v", len(puts), err)
	}
}
