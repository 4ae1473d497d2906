package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
)

// PlacePods returns the chunks of a host that have to be written so that the store has these pods.
// have are the values that the store has of the host, by key. A pod that is unchanged stays in its
// chunk; a new one takes the first free place. So the change of a pod rewrites one chunk. A chunk
// without pods gets an empty value.
func PlacePods(host string, have map[string][]byte, pods []Pod) (puts []store.Entry, err error) {
	left := make(map[string]Pod, len(pods))
	for _, p := range pods {
		p.Addrs = slices.Clone(p.Addrs)
		slices.SortFunc(p.Addrs, netip.Addr.Compare)
		left[p.Name] = p
	}
	if len(left) < len(pods) {
		return nil, fmt.Errorf("two pods of host %s have one name", host)
	}
	chunks := map[string][]Pod{}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if !strings.HasPrefix(key, PodsTree+host+"/") {
			continue
		}
		chunks[key] = nil
		if len(have[key]) == 0 {
			continue
		}
		old, err := Decode[Pods](have[key])
		if err != nil {
			continue // it is written again
		}
		for _, p := range old.Pods {
			if now, ok := left[p.Name]; ok {
				chunks[key] = append(chunks[key], now)
				delete(left, p.Name)
			}
		}
	}
	number := 0
	for _, name := range slices.Sorted(maps.Keys(left)) {
		key := chunkKey(host, number)
		for len(chunks[key]) >= ChunkPods {
			number++
			key = chunkKey(host, number)
		}
		chunks[key] = append(chunks[key], left[name])
	}
	for _, key := range slices.Sorted(maps.Keys(chunks)) {
		value := []byte{}
		if of := chunks[key]; len(of) > 0 {
			slices.SortFunc(of, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
			if value, err = Encode(&Pods{Pods: of}); err != nil {
				return nil, err
			}
		}
		if old, ok := have[key]; !ok || !bytes.Equal(old, value) {
			puts = append(puts, store.Entry{Key: key, Value: value})
		}
	}
	return puts, nil
}

// Announce returns a pod of the host as others accept it: without the labels that the host may not
// give, or that cannot be the name of a table. It returns false for a pod without an address in the
// host's ranges.
func (n *Node) Announce(p *Pod) (Pod, bool) {
	a := Pod{Name: p.Name}
	if a.Name == "" || !printable(a.Name) {
		a.Name = TextDigest(p.Name).String()
	}
	for _, addr := range p.Addrs {
		if n.Owns(addr) && len(a.Addrs) < maxPodAddrs {
			a.Addrs = append(a.Addrs, addr)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if len(a.Labels) == maxPodLabels {
			break
		}
		if value := p.Labels[key]; n.MayLabel(key) && checkLabelKey(key) == nil &&
			printable(value) {
			if a.Labels == nil {
				a.Labels = map[string]string{}
			}
			a.Labels[key] = value
		}
	}
	return a, len(a.Addrs) > 0
}

func chunkKey(host string, number int) string {
	return fmt.Sprintf("%s%s/%04d", PodsTree, host, number)
}
