package client_test

import (
	"bytes"
	"crypto/ed25519"
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

// benchHosts is how many hosts the copy of BenchmarkFollowChange has, with ten pods each.
const benchHosts = 1000

// benchCerts returns the certificates of all hosts, and who signed them.
func benchCerts(b *testing.B) (certs []store.Change, ca cluster.Key) {
	b.Helper()
	key, err := identity.NewKey()
	if err != nil {
		b.Fatal(err)
	}
	for h := range benchHosts {
		n := cluster.Node{Name: fmt.Sprint("h", h), Labels: []string{"app", "tier"},
			Ranges: []netip.Prefix{netip.PrefixFrom(
				netip.AddrFrom4([4]byte{10, byte(h >> 8), byte(h)}), 24)}}
		for i, to := range [][]byte{n.Serial[:], n.TLS[:], n.WireGuard[:]} {
			copy(to, []byte{byte(i + 1), byte(h >> 8), byte(h)})
		}
		if err := n.Sign(key); err != nil {
			b.Fatal(err)
		}
		value, err := cluster.Encode(&n)
		if err != nil {
			b.Fatal(err)
		}
		certs = append(certs, store.Change{Entry: store.Entry{Key: cluster.NodeTree + n.Name,
			Value: value}})
	}
	return certs, cluster.Key(key.Public().(ed25519.PublicKey))
}

// benchPods returns the chunk of a host, one of whose pods has another label in each round.
func benchPods(b *testing.B, host, round int) store.Change {
	b.Helper()
	var p cluster.Pods
	for n := range 10 {
		pod := cluster.Pod{Name: fmt.Sprintf("default/web-%d-%d", host, n), Addrs: []netip.Addr{
			netip.AddrFrom4([4]byte{10, byte(host >> 8), byte(host), byte(n)})},
			Labels: map[string]string{"app": "web", "tier": "front"}}
		if n == host%10 {
			pod.Labels["app"] = fmt.Sprint("round", round)
		}
		p.Pods = append(p.Pods, pod)
	}
	value, err := cluster.Encode(&p)
	if err != nil {
		b.Fatal(err)
	}
	return store.Change{Entry: store.Entry{Key: fmt.Sprintf("%sh%d/0000", cluster.PodsTree, host),
		Value: value}}
}

// BenchmarkFollowChange is what a host does for a change of a pod of another one, from the frame
// on. It decodes the change, applies it to the guarded copy, and checks it, alone and with 63
// others in a batch. ns/change is for each change.
func BenchmarkFollowChange(b *testing.B) {
	certs, ca := benchCerts(b)
	for _, together := range []int{1, 64} {
		was, frames := benchFrames(b, together)
		for _, upTo := range []string{"decode", "copy", "check"} {
			b.Run(fmt.Sprintf("%s-%d", upTo, together), func(b *testing.B) {
				follow(b, certs, was, ca, frames, upTo)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*together),
					"ns/change")
			})
		}
	}
}

// benchFrames returns changes as weir-store sends them to a host that has exactly what was before
// them, and what that is before the first one. After the last one it is the same.
func benchFrames(b *testing.B, together int) (was []store.Change, frames [][]byte) {
	b.Helper()
	var rounds [][]store.Change
	values := map[string][]byte{}
	for round := range 4 * benchHosts / together {
		var changes []store.Change
		for i := range together {
			ch := benchPods(b, (round*together+i)%benchHosts, round)
			changes = append(changes, ch)
			values[ch.Key] = ch.Value
		}
		rounds = append(rounds, changes)
	}
	for key, value := range values {
		was = append(was, store.Change{Entry: store.Entry{Key: key, Value: value}})
	}
	for round, changes := range rounds {
		deltas := wire.Deltas(changes, func(key string) []byte { return values[key] })
		frames = append(frames, wire.Batches(int64(round+2), deltas))
		for _, ch := range changes {
			values[ch.Key] = ch.Value
		}
	}
	return was, frames
}

// follow takes the frames, up to a part of the work.
func follow(b *testing.B, certs, was []store.Change, ca cluster.Key, frames [][]byte, upTo string) {
	b.Helper()
	held := store.NewGuarded(cluster.Guard(), store.Snapshot{})
	checked := cluster.NewDesired("own", cluster.Trust{CA: []cluster.Key{ca}}, nil)
	checked.Apply(held.Step(store.Batch{Revision: 1, Changes: certs}))
	checked.Apply(held.Step(store.Batch{Revision: 1, Changes: was}))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		_, body, err := wire.ReadFrame(bytes.NewReader(frames[i%len(frames)]), wire.MaxFrame)
		if err != nil {
			b.Fatal(err)
		}
		m, err := wire.DecodeBatch(body)
		if err != nil {
			b.Fatal(err)
		}
		if upTo == "decode" {
			continue
		}
		batch := store.Batch{Revision: m.Revision, Changes: make([]store.Change, len(m.Changes))}
		for n, ch := range m.Changes {
			before, _ := held.Stored().Get(ch.Key)
			if batch.Changes[n], err = ch.Of(before.Value); err != nil {
				b.Fatal(err)
			}
		}
		steps := held.Step(batch)
		if upTo == "copy" {
			continue
		}
		if e := checked.Apply(steps); len(e.Claims) > 0 || len(e.Labels) == 0 {
			b.Fatal(e.Claims, len(e.Labels))
		}
	}
}
