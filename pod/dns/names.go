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
	mu      sync.RWMutex
	byName  map[string][]member   // guarded by mu; by what is in front of Zone, in lower case
	byAlias map[alias][]member    // guarded by mu
	byAddr  map[netip.Addr]owner  // guarded by mu
	byPod   map[string]registered // guarded by mu; by key
	// guarded by mu; the interfaces of a container, in the order in which they came
	byContainer map[string][]link
}

// alias is a name that only containers of a network know.
type alias struct{ network, name string }

// link is an interface of a container: the key of its pod, and its network.
type link struct{ key, network string }

// member is an address of a pod.
type member struct {
	addr netip.Addr
	key  string
}

// owner is the pod with an address.
type owner struct {
	key, container string
	name           string // with Zone, "" for none
}

// registered is what a pod was entered with.
type registered struct {
	names     []string
	aliases   []alias
	addrs     []netip.Addr
	container string
}

// ownName returns the name of a pod in front of Zone, and whether it can have that.
func ownName(name string) (string, bool) {
	name = strings.ToLower(name) + "."
	return name, valid(name) && name != labelZone && !strings.HasSuffix(name, "."+labelZone)
}

// namesOf returns the names of a pod in front of Zone.
func namesOf(p *pod.Pod) (names []string) {
	if name, ok := ownName(p.Name); ok {
		names = append(names, name)
	}
	for key, value := range p.Labels {
		if name, ok := labelName(key, value); ok {
			names = append(names, name)
		}
	}
	return names
}

// labelName returns the name of a label in front of Zone, and whether it can have that. The name
// says which key it is of: behind its first dot, as it is. With others, who may set app, but not
// bank.app or App, could give a pod the name of bank.app=db by app=db.bank, or of App=db by app=db.
func labelName(key, value string) (string, bool) {
	name := strings.ToLower(value) + "." + key + "." + labelZone
	return name, valid(name) && !strings.Contains(value, ".") && key == strings.ToLower(key)
}

// aliasesOf returns the names of a pod in its network. One without a network has none.
func aliasesOf(p *pod.Pod) (all []alias) {
	for _, a := range p.Aliases {
		name, ok := ownName(a)
		if one := (alias{p.Network, name}); ok && p.Network != "" && !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
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

// Add enters a pod, in place of what was known of it.
func (n *Names) Add(p pod.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wentLocked(p.Key)
	if n.byName == nil {
		n.byName, n.byAddr = map[string][]member{}, map[netip.Addr]owner{}
		n.byPod, n.byAlias = map[string]registered{}, map[alias][]member{}
		n.byContainer = map[string][]link{}
	}
	r := registered{namesOf(&p), aliasesOf(&p), slices.Clone(p.Addrs), p.Container}
	n.byPod[p.Key] = r
	n.byContainer[p.Container] = append(n.byContainer[p.Container], link{p.Key, p.Network})
	for _, a := range r.addrs {
		for _, name := range r.names {
			n.byName[name] = append(n.byName[name], member{a, p.Key})
		}
		for _, one := range r.aliases {
			n.byAlias[one] = append(n.byAlias[one], member{a, p.Key})
		}
		o := owner{key: p.Key, container: p.Container}
		if len(r.names) > 0 && r.names[0] == strings.ToLower(p.Name)+"." {
			o.name = r.names[0] + Zone
		}
		n.byAddr[a] = o
	}
}

// Remove removes a pod.
func (n *Names) Remove(p pod.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wentLocked(p.Key)
}

func (n *Names) wentLocked(key string) {
	r, known := n.byPod[key]
	if !known {
		return
	}
	isOf := func(m member) bool { return m.key == key }
	for _, name := range r.names {
		remove(n.byName, name, isOf)
	}
	for _, one := range r.aliases {
		remove(n.byAlias, one, isOf)
	}
	remove(n.byContainer, r.container, func(l link) bool { return l.key == key })
	for _, a := range r.addrs {
		if n.byAddr[a].key == key { // it may be another pod's by now
			delete(n.byAddr, a)
		}
	}
	delete(n.byPod, key)
}

// remove takes elements from a list of a map, and the list when nothing is left of it.
func remove[K comparable, V any](of map[K][]V, key K, which func(V) bool) {
	if of[key] = slices.DeleteFunc(of[key], which); len(of[key]) == 0 {
		delete(of, key)
	}
}

// membersLocked are the addresses that a name has for who asks: what an alias in one of its
// networks says, else the pods of this name.
func (n *Names) membersLocked(name string, asker netip.Addr) []member {
	for _, l := range n.byContainer[n.byAddr[asker].container] {
		if all := n.byAlias[alias{l.network, name}]; len(all) > 0 {
			return all
		}
	}
	return n.byName[name]
}

// lookup returns addresses of one family, at most some, from a random place on, and whether there
// is such a name for the pod with the address asker. The name is in front of Zone, in lower case.
func (n *Names) lookup(name string, asker netip.Addr, is4 bool, most int, random uint32) (
	all []netip.Addr, ok bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	members := n.membersLocked(name, asker)
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
