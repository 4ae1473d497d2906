package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
)

// randomPods has up to 34 pods, whose names and labels look like what is between pods.
func randomPods(random *rand.Rand) (p Pods) {
	odd := []string{"a", `},{"name":"`, `]}`, `\`, `"`, `<>`, `x},`, "b"}
	for range random.IntN(4) * (1 + random.IntN(11)) {
		pod := Pod{Name: fmt.Sprint(odd[random.IntN(len(odd))], random.IntN(9)),
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(4))})}}
		for range random.IntN(3) {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[odd[random.IntN(len(odd))]] = odd[random.IntN(len(odd))]
		}
		p.Pods = append(p.Pods, pod)
	}
	slices.SortFunc(p.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
	p.Pods = slices.CompactFunc(p.Pods, func(a, b Pod) bool { return a.Name == b.Name })
	return p
}

// mutate returns a document near another one: with some pods of a third one, or with other bytes.
func mutate(t *testing.T, random *rand.Rand, p Pods, value []byte) []byte {
	t.Helper()
	if random.IntN(2) == 0 {
		next := Pods{Pods: slices.Clone(p.Pods)}
		for _, pod := range randomPods(random).Pods {
			at := random.IntN(len(next.Pods) + 1)
			switch {
			case random.IntN(3) == 0:
				next.Pods = slices.Insert(next.Pods, at, pod)
			case at < len(next.Pods) && random.IntN(2) == 0:
				next.Pods[at] = pod
			case at < len(next.Pods):
				next.Pods = slices.Delete(next.Pods, at, at+1)
			}
			if random.IntN(3) > 0 {
				break
			}
		}
		if random.IntN(4) > 0 {
			slices.SortFunc(next.Pods, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
		}
		if v, err := Encode(&next); err == nil {
			return v
		}
	}
	parts := []string{",", `"`, "}", "]}", `},{"name":"`, " ", "a",
		`{"name":"a","addrs":["10.0.0.1"]}`}
	from := random.IntN(len(value) + 1)
	to := min(from+random.IntN(3)*random.IntN(60), len(value))
	return slices.Concat(value[:from], []byte(parts[random.IntN(len(parts))]), value[to:])
}

// TestPodsChange: what podsChange decides is what decoding both documents whole says.
func TestPodsChange(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	decided, valid := 0, 0
	for range 60000 {
		p := randomPods(random)
		old, err := Encode(&p)
		if err != nil {
			continue
		}
		next := mutate(t, random, p, old)
		want, bad := Decode[Pods](next)
		if bad == nil {
			valid++
		}
		gone, come, ok := podsChange(old, next)
		if !ok {
			continue
		}
		if decided++; bad != nil {
			t.Fatalf("seed %d: %s\nafter %s: %v", seed, next, old, bad)
		}
		is := slices.DeleteFunc(slices.Clone(p.Pods), func(a Pod) bool {
			return slices.ContainsFunc(gone.Pods, func(b Pod) bool { return a.Name == b.Name })
		})
		if len(is) != len(p.Pods)-len(gone.Pods) {
			t.Fatalf("seed %d: %s\nhas not all of %v", seed, old, gone)
		}
		is = append(is, come.Pods...)
		slices.SortFunc(is, func(a, b Pod) int { return cmp.Compare(a.Name, b.Name) })
		again, err := Encode(&Pods{Pods: is})
		if err != nil || !bytes.Equal(again, next) || len(want.Pods) != len(is) {
			t.Fatalf("seed %d: %s\nthen %s\ngot %s: %v", seed, old, next, again, err)
		}
	}
	if decided < valid/2 || valid < 5000 {
		t.Errorf("seed %d: decided %d of %d that are valid", seed, decided, valid)
	}
}
