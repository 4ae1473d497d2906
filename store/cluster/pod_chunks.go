package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/store"
)

// PodChunkPuts returns the puts of the chunks of a host after which the store has these pods.
// have are the values that the store has of the host, by key. A pod that is unchanged stays in its
// chunk; a new one takes the first free place. So the change of a pod rewrites one chunk. A chunk
// without pods gets an empty value. Pods for which there is no chunk any more are left out, and
// counted in the error, beside what is to be written.
func PodChunkPuts(host string, have map[string][]byte, pods []Pod) (puts []store.Entry, err error) {
	left := make(map[string]Pod, len(pods))
	for _, p := range pods {
		p.Addrs = slices.Clone(p.Addrs)
		slices.SortFunc(p.Addrs, netip.Addr.Compare)
		left[p.Name] = p
	}
	if len(left) < len(pods) {
		return nil, fmt.Errorf("two pods of host %s have one name", host)
	}
	chunks := map[string]*podChunk{}
	for _, key := range slices.Sorted(maps.Keys(have)) {
		if !isChunk(host, key) {
			continue // the host may not write it
		}
		chunks[key] = &podChunk{}
		if len(have[key]) == 0 {
			continue
		}
		old, err := Decode[Pods](have[key])
		if err != nil {
			continue // it is written again
		}
		for _, p := range old.Pods {
			if now, ok := left[p.Name]; ok && chunks[key].add(now) {
				delete(left, p.Name)
			}
		}
	}
	// Pods that are as large as a pod can be fill a chunk sooner than small ones behind them.
	number, over := 0, 0
	for _, name := range slices.Sorted(maps.Keys(left)) {
		for ; number < maxChunks; number++ {
			key := chunkKey(host, number)
			if chunks[key] == nil {
				chunks[key] = &podChunk{}
			}
			if chunks[key].add(left[name]) {
				break
			}
		}
		if number == maxChunks {
			over++
		}
	}
	if over > 0 {
		err = fmt.Errorf("%d of %d pods have no place in the %d chunks of a host", over, len(pods),
			maxChunks)
	}
	for _, key := range slices.Sorted(maps.Keys(chunks)) {
		value := []byte{}
		if of := chunks[key].pods; len(of) > 0 {
			slices.SortFunc(of, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
			encoded, bad := Encode(&Pods{Pods: of})
			if bad != nil {
				return nil, bad
			}
			value = encoded
		}
		if old, ok := have[key]; !ok || !bytes.Equal(old, value) {
			puts = append(puts, store.Entry{Key: key, Value: value})
		}
	}
	return puts, err
}

// podChunk is a chunk: some pods of a host.
type podChunk struct {
	pods    []Pod
	size    int // at most, as a document
	members int // of tables of labels
}

// add adds a pod if there is space for it.
func (c *podChunk) add(p Pod) bool {
	size := p.most()
	members := c.members + p.members()
	if len(c.pods) == MaxChunkPods || members > maxMembers ||
		len(c.pods) > 0 && c.size+size > maxChunk-maxFrame {
		return false
	}
	c.pods, c.size, c.members = append(c.pods, p), c.size+size, members
	return true
}

const (
	maxFrame   = 64 // bytes of a chunk beside its pods
	maxAddr    = 48 // of an address
	maxEscaped = 6  // of a character: <
)

// most returns how long a pod may be as a document. A pod fits into a chunk, whatever it has.
func (p *Pod) most() int {
	n := maxFrame + maxEscaped*len(p.Name) + maxAddr*len(p.Addrs)
	for key, value := range p.Labels {
		n += maxEscaped * (len(key) + len(value) + 1)
	}
	return n
}

// AllowedPod returns a pod of the host as others accept it: without the labels that the host may
// not give, or that cannot be the name of a table. It returns false for a pod without an address in
// the host's ranges.
func (n *Node) AllowedPod(p *Pod) (Pod, bool) {
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
			isLabel(key, value) {
			if a.Labels == nil {
				a.Labels = map[string]string{}
			}
			a.Labels[key] = value
		}
	}
	return a, len(a.Addrs) > 0
}

// isChunk reports whether a key is one of a host's chunks.
func isChunk(host, key string) bool {
	text, ok := strings.CutPrefix(key, PodsTree+host+"/")
	n, err := strconv.ParseUint(text, 10, 16)
	return ok && err == nil && n < maxChunks && key == chunkKey(host, int(n))
}

func chunkKey(host string, number int) string {
	return fmt.Sprintf("%s%s/%04d", PodsTree, host, number)
}
