package cluster

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
)

// Trust is what a host knows of its cluster without the store: it got it when it joined, and keeps
// it on its disk. What it reads in the store is checked against that.
type Trust struct {
	Cluster Serial // the id
	Epoch   uint64 // the highest one believed
	CA      []Key
	Admins  KeyList // who signs heads; none: heads need no signature
	Head    Number  // the highest one seen
}

// Desired is what a host enforces of the store: the values that its checks let through. A value
// that fails a check is ignored, and the last good one of its key stays. It is not safe for
// concurrent use.
type Desired struct {
	own     string
	trust   Trust
	hosts   map[string]*host
	waiting map[string]bool // hosts whose certificates are refused now
	revoked map[Serial]bool
	tables  map[string]*value // by key of a bucket
	labels  labelCounts       // of the pods of other hosts
	head    *Head
	version value // of HeadKey
	stores  []string
	named   uint64 // the epoch of the last w/cluster that was not refused
	// the epoch of the last w/cluster if it is too far away; 0: it is not
	implausible uint64
	kept        map[string]int   // bytes of the good values that are not the last ones, by key
	keptSize    int              // of all of them
	maxKept     int              // of keptSize for pods and tables
	refused     map[string]error // why the last value of a single key, such as HeadKey, is refused

	now *step // what Apply collects
}

// value is a value of a key: the last one, and the last that passed the checks. Both are nil before
// there is one, and share their bytes with the copy.
type value struct{ good, last []byte }

// host is what there is of a host.
type host struct {
	cert   value
	at     value
	pods   []chunk    // ordered by key
	node   *Node      // the accepted certificate; nil: none
	points *Endpoints // accepted; nil: none
}

// Label is an address in a table of a label, such as app=web.
type Label struct {
	Table string
	Addr  netip.Addr
}

// SharedMember is a member of a shared table.
type SharedMember struct {
	Table  string
	Prefix netip.Prefix
}

// HostChange has the changed data of another host. Without a certificate the host was removed.
type HostChange struct {
	Name  string
	Node  *Node
	Addrs []netip.AddrPort
}

// Effects are the changes of a step for this host. Each element appears once.
type Effects struct {
	Hosts   []HostChange             // ordered by name
	Labels  map[Label]bool           // true: the address is in the table from now on
	Shared  map[SharedMember]*uint32 // the value; nil: not a member any more
	Head    *Head                    // a new version
	Trust   bool                     // Trust has changed
	Revoked []Serial                 // serial numbers that were not known as removed
	Claims  []Refusal                // what was refused
}

// Refusal is a value that failed a check.
type Refusal struct {
	Key string
	Err error
}

func (c *Refusal) Error() string { return fmt.Sprintf("%s: %v", c.Key, c.Err) }

// step collects what changes in one Apply.
type step struct {
	effects Effects
	hosts   map[string]bool
	labels  map[Label]bool // whether the address was in the table before
	retry   bool           // a range may be free now
	passed  []Key          // KeyList.Passed of the lists that the host has followed in this step
}

// ErrOutdated means that a document is older than one that was accepted.
var ErrOutdated = errors.New("older than what was seen already")

// NewDesired returns the state of a host that knows only its trust data and the removed serial
// numbers.
func NewDesired(own string, t Trust, revoked []Serial) *Desired {
	d := &Desired{own: own, trust: t, hosts: map[string]*host{}, waiting: map[string]bool{},
		revoked: map[Serial]bool{}, tables: map[string]*value{}, labels: newLabelCounts(),
		kept: map[string]int{}, maxKept: store.MaxCopy, refused: map[string]error{}}
	for _, s := range revoked {
		d.revoked[s] = true
	}
	return d
}

// Trust returns the trust data of the host, which do not come from the store.
func (d *Desired) Trust() Trust { return d.trust }

// Head returns the version of the rules, nil before there is one.
func (d *Desired) Head() *Head { return d.head }

// Stores returns the addresses of all weir-stores, if the store has them.
func (d *Desired) Stores() []string { return d.stores }

// Node returns the accepted certificate of a host, nil if there is none.
func (d *Desired) Node(name string) *Node {
	if h := d.hosts[name]; h != nil {
		return h.node
	}
	return nil
}

// SetSeen says which head was the highest that the host had seen, and its last confirmed one, after
// the copy on the disk was read. A copy that lost its end must not bring an older version.
func (d *Desired) SetSeen(highest Number, confirmed *Head) {
	if d.trust.Head.Compare(highest) < 0 {
		d.trust.Head, d.head = highest, confirmed
	}
}

// Hosts returns the hosts with an accepted certificate, ordered by name.
func (d *Desired) Hosts() (all []HostChange) {
	for _, name := range slices.Sorted(maps.Keys(d.hosts)) {
		if d.hosts[name].node != nil {
			all = append(all, d.host(name))
		}
	}
	return all
}

// Revoked returns all removed serial numbers, ordered.
func (d *Desired) Revoked() []Serial {
	return slices.SortedFunc(maps.Keys(d.revoked), Serial.Compare)
}

// LastGood returns the good values that the copy alone does not give back, ordered by key. These
// are those of keys whose last value was refused. While a certificate is refused, perhaps because
// another host was there before, they are also all certificates. A start gives them to Load.
func (d *Desired) LastGood() (all []store.Entry) {
	kept := maps.Clone(d.kept)
	if len(d.waiting) > 0 {
		for name := range d.hosts {
			kept[NodeTree+name] = 0
		}
	}
	for _, key := range slices.Sorted(maps.Keys(kept)) {
		if v := d.value(key); v != nil && v.good != nil {
			all = append(all, store.Entry{Key: key, Value: v.good})
		}
	}
	return all
}

// Load is the first step: what LastGood returned in the run before, and everything that the copy
// has. Of two hosts with one range, the one that was accepted, or whose certificate is older,
// stays.
func (d *Desired) Load(lastGood, entries []store.Entry) Effects {
	entries = slices.Clone(entries)
	slices.SortStableFunc(entries, func(a, b store.Entry) int {
		return cmp.Compare(a.Revision, b.Revision)
	})
	var certs, rest []store.Change
	for _, e := range slices.Concat(lastGood, entries) {
		if strings.HasPrefix(e.Key, NodeTree) || strings.HasPrefix(e.Key, RemovedTree) {
			certs = append(certs, store.Change{Entry: e})
		} else {
			rest = append(rest, store.Change{Entry: e})
		}
	}
	return d.Apply(slices.Concat(certs, rest))
}

// Apply takes the changes of a step, and returns what changes for this host. The work follows the
// changes. A change of a certificate reads all pods of its host again, and compares its ranges with
// those of all hosts.
func (d *Desired) Apply(changes []store.Change) Effects {
	d.now = &step{hosts: map[string]bool{}, labels: map[Label]bool{},
		effects: Effects{Labels: map[Label]bool{}, Shared: map[SharedMember]*uint32{}}}
	for _, ch := range changes { // whose signatures count
		if ch.Key == KeysKey {
			d.apply(ch)
		}
	}
	for _, ch := range changes { // they end rights, so they come before what gives some
		if strings.HasPrefix(ch.Key, RemovedTree) && !ch.Deleted {
			d.check(ch.Key, d.remove(ch.Key, ch.Value))
		}
	}
	for _, ch := range changes { // a head is of an epoch that was begun
		if ch.Key == IdentityKey {
			d.apply(ch)
		}
	}
	for _, ch := range changes {
		if ch.Key != IdentityKey && ch.Key != KeysKey {
			d.apply(ch)
		}
	}
	for d.now.retry {
		d.now.retry = false
		for _, name := range slices.Sorted(maps.Keys(d.waiting)) {
			d.certify(name, false)
		}
	}
	s := d.now
	for l, was := range s.labels {
		if is := d.labels.has(l); is != was {
			s.effects.Labels[l] = is
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.hosts)) {
		s.effects.Hosts = append(s.effects.Hosts, d.host(name))
	}
	d.now = nil
	return s.effects
}

func (d *Desired) host(name string) HostChange {
	c := HostChange{Name: name}
	if h := d.hosts[name]; h != nil && h.node != nil {
		c.Node = h.node
		if h.points != nil {
			c.Addrs = h.points.Addrs
		}
	}
	return c
}

// check notes a claim that was refused.
func (d *Desired) check(key string, err error) {
	if err != nil {
		d.now.effects.Claims = append(d.now.effects.Claims, Refusal{key, err})
	}
}

// checkSingle is check for a key that there is once. It is refused until it has another value.
func (d *Desired) checkSingle(key string, err error) {
	if d.check(key, err); err != nil {
		d.refused[key] = err
	} else {
		delete(d.refused, key)
	}
}

// Refused returns which of the values that there are once are refused now, ordered by key.
func (d *Desired) Refused() (all []Refusal) {
	for _, key := range slices.Sorted(maps.Keys(d.refused)) {
		all = append(all, Refusal{key, d.refused[key]})
	}
	return all
}

func (d *Desired) apply(ch store.Change) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(ch.Key, Watched), "/")
	name, _, _ := strings.Cut(rest, "/")
	switch {
	case ch.Deleted && d.refused[ch.Key] != nil:
		delete(d.refused, ch.Key)
	case ch.Key == HeadKey && !ch.Deleted:
		d.version.last = ch.Value
		d.checkSingle(ch.Key, d.setHead(ch.Value))
		d.keep(ch.Key, &d.version)
	case ch.Key == IdentityKey && !ch.Deleted:
		d.checkSingle(ch.Key, d.setIdentity(ch.Value))
	case ch.Key == KeysKey && !ch.Deleted:
		d.checkSingle(ch.Key, d.setKeys(ch.Value))
	case kind == "node":
		d.hostOf(name).cert.last = valueOf(ch)
		d.certify(name, true)
	case kind == "at":
		d.hostOf(name).at.last = valueOf(ch)
		d.locate(name, true)
	case kind == "pods":
		h := d.hostOf(name)
		at, found := h.chunk(ch.Key)
		if !found {
			h.pods = slices.Insert(h.pods, at, chunk{key: ch.Key})
		}
		h.pods[at].last = valueOf(ch)
		d.place(name, &h.pods[at], true)
		if h.pods[at].last == nil {
			h.pods = slices.Delete(h.pods, at, at+1)
		}
	case kind == "table":
		d.share(ch.Key, name, valueOf(ch))
	}
	d.tidy(name)
}

// valueOf returns the value that a key has after a change, nil for none.
func valueOf(ch store.Change) []byte {
	if ch.Deleted {
		return nil
	}
	if ch.Value == nil {
		return []byte{}
	}
	return ch.Value
}

func (d *Desired) hostOf(name string) *host {
	h := d.hosts[name]
	if h == nil {
		h = &host{}
		d.hosts[name] = h
	}
	return h
}

// tidy forgets a host of which nothing is left.
func (d *Desired) tidy(name string) {
	h := d.hosts[name]
	if h != nil && h.node == nil && h.cert.last == nil && h.at.last == nil && len(h.pods) == 0 {
		delete(d.hosts, name)
		delete(d.waiting, name)
	}
}

// value returns the value of a key that LastGood may have.
func (d *Desired) value(key string) *value {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(key, Watched), "/")
	name, _, _ := strings.Cut(rest, "/")
	h := d.hosts[name]
	switch {
	case key == HeadKey:
		return &d.version
	case kind == "table":
		return d.tables[key]
	case h == nil:
		return nil
	case kind == "node":
		return &h.cert
	case kind == "at":
		return &h.at
	}
	if at, found := h.chunk(key); found {
		return &h.pods[at].value
	}
	return nil
}

// keep notes whether the good value of a key is another one than the last.
func (d *Desired) keep(key string, v *value) {
	d.keptSize -= d.kept[key]
	delete(d.kept, key)
	if v.good != nil && !bytes.Equal(v.good, v.last) {
		d.kept[key] = cost(key, v)
		d.keptSize += d.kept[key]
	}
}

// mayKeep reports whether there is space for the good value of pods or of a table beside the last
// one, which is refused. The copy does not count it. So an attacker in the store could fill the
// memory of every host with good values, each of which it replaces by one that is refused. It gains
// nothing when the good value is dropped, since it may write an empty one. Of other keys there are
// few.
func (d *Desired) mayKeep(key string, v *value) bool {
	return v.good == nil || d.keptSize-d.kept[key]+cost(key, v) <= d.maxKept
}

// cost is what the good value of a key takes.
func cost(key string, v *value) int { return store.Entry{Key: key, Value: v.good}.Cost() }

// HasTable reports whether there is a shared table of a name.
func (d *Desired) HasTable(name string) bool {
	for key := range d.tables {
		if strings.HasPrefix(key, TableTree+name+"/") {
			return true
		}
	}
	return false
}
