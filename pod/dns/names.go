package dns

import (
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weirnet/weir/pod"
)

// Zone is the domain of all names of pods.
const Zone = "weir."

// labelZone is the domain of labels. A pod whose name would lie in it has no name, so that none can
// take the place of a label.
const labelZone = "label."

// Names are the names of pods. The zero value has none.
type Names struct {
	mu     sync.RWMutex
	byName map[string][]member   // guarded by mu; by what is in front of Zone, in lower case
	byAddr map[netip.Addr]owner  // guarded by mu
	byPod  map[string]registered // guarded by mu; by key
}

// member is an address of a pod.
type member struct {
	addr netip.Addr
	key  string
}

// owner is the pod with an address.
type owner struct {
	key  string
	name string // with Zone, "" for none
}

// registered is what a pod was entered with.
type registered struct {
	names []string
	addrs []netip.Addr
}

// namesOf returns the names of a pod in front of Zone.
func namesOf(p *pod.Pod) (names []string) {
	if name := strings.ToLower(p.Name) + "."; valid(name) && name != labelZone &&
		!strings.HasSuffix(name, "."+labelZone) {
		names = append(names, name)
	}
	for key, value := range p.Labels {
		if name := strings.ToLower(value + "." + key + "." + labelZone); valid(name) {
			names = append(names, name)
		}
	}
	return names
}

// valid reports whether a name can be written in a message.
func valid(name string) bool {
	if len(name)+len(Zone) > 254 {
		return false
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return true
}

// Came enters a pod, in place of what was known of it.
func (n *Names) Came(p pod.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wentLocked(p.Key)
	if n.byName == nil {
		n.byName, n.byAddr = map[string][]member{}, map[netip.Addr]owner{}
		n.byPod = map[string]registered{}
	}
	r := registered{namesOf(&p), slices.Clone(p.Addrs)}
	n.byPod[p.Key] = r
	for _, a := range r.addrs {
		for _, name := range r.names {
			n.byName[name] = append(n.byName[name], member{a, p.Key})
		}
		o := owner{key: p.Key}
		if len(r.names) > 0 && r.names[0] == strings.ToLower(p.Name)+"." {
			o.name = r.names[0] + Zone
		}
		n.byAddr[a] = o
	}
}

// Went removes a pod.
func (n *Names) Went(p pod.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wentLocked(p.Key)
}

func (n *Names) wentLocked(key string) {
	r := n.byPod[key]
	for _, name := range r.names {
		left := slices.DeleteFunc(n.byName[name], func(m member) bool { return m.key == key })
		if n.byName[name] = left; len(left) == 0 {
			delete(n.byName, name)
		}
	}
	for _, a := range r.addrs {
		if n.byAddr[a].key == key { // it may be another pod's by now
			delete(n.byAddr, a)
		}
	}
	delete(n.byPod, key)
}

// lookup returns addresses of one family, at most some, from a random place on, and whether there
// is such a name. The name is in front of Zone, in lower case.
func (n *Names) lookup(name string, is4 bool, most int, random uint32) (all []netip.Addr, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	members := n.byName[name]
	for i := range members {
		m := members[(int(random%uint32(len(members)))+i)%len(members)]
		if m.addr.Is4() == is4 {
			all = append(all, m.addr)
		}
		if len(all) == most || i > 2*most {
			break
		}
	}
	return all, len(members) > 0
}

// owner returns the name of the pod with an address, "" for none, and whether there is a pod.
func (n *Names) owner(a netip.Addr) (name string, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	o, ok := n.byAddr[a]
	return o.name, ok
}
