package cluster

import (
	"crypto/ed25519"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/store"
)

// authority signs certificates in tests.
type authority struct {
	ca, admin ed25519.PrivateKey
	trust     Trust
}

func keyOf(name string) ed25519.PrivateKey {
	seed := TextDigest(name)
	return ed25519.NewKeyFromSeed(seed[:])
}

func public(k ed25519.PrivateKey) Key { return Key(k.Public().(ed25519.PublicKey)) }

func newAuthority() *authority {
	a := &authority{ca: keyOf("ca"), admin: keyOf("admin")}
	a.trust = Trust{Cluster: Serial{1}, Epoch: 1, CA: []Key{public(a.ca)}}
	return a
}

// node is a certificate for a host; what is to be wrong with it is changed before it is signed.
func (a *authority) node(t testing.TB, name string, ranges ...string) *Node {
	t.Helper()
	serial := TextDigest("serial " + name)
	n := &Node{Name: name, Serial: Serial(serial[:16]),
		TLS: public(keyOf(name)), WireGuard: Key(TextDigest("wg " + name)), Labels: []string{"app"}}
	for _, r := range ranges {
		n.Ranges = append(n.Ranges, netip.MustParsePrefix(r))
	}
	return a.sign(t, n)
}

func (a *authority) sign(t testing.TB, n *Node) *Node {
	t.Helper()
	if err := n.Sign(a.ca); err != nil {
		t.Fatal(err)
	}
	return n
}

func put(t testing.TB, key string, d Document) store.Change {
	t.Helper()
	value, err := Encode(d)
	if err != nil {
		t.Fatal(err)
	}
	return store.Change{Entry: store.Entry{Key: key, Value: value}}
}

func gone(key string) store.Change {
	return store.Change{Entry: store.Entry{Key: key}, Deleted: true}
}

func podOf(addr, label string) *Pods {
	p := Pod{Name: "p" + addr, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
	if key, value, ok := strings.Cut(label, "="); ok {
		p.Labels = map[string]string{key: value}
	}
	return &Pods{Pods: []Pod{p}}
}

func endpointsOf(t testing.TB, n *Node, by string, sequence uint64) *Endpoints {
	t.Helper()
	e := &Endpoints{Serial: n.Serial, Sequence: sequence,
		Addrs: []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("192.0.2.1"),
			uint16(1000+sequence))}}
	if err := e.Sign(n.Name, keyOf(by)); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestForeignClaims: a stolen host, weir-store or etcd writes what is not its own. Nothing of it
// has an effect, and what was there before stays.
func TestForeignClaims(t *testing.T) {
	a := newAuthority()
	b, c := a.node(t, "b", "10.0.2.0/24"), a.node(t, "c", "10.0.3.0/24")
	stolen := *b
	if err := stolen.Sign(keyOf("b")); err != nil { // with its own key instead of the CA's
		t.Fatal(err)
	}
	wider := a.node(t, "b", "10.0.2.0/24")
	wider.Ranges = append(wider.Ranges, netip.MustParsePrefix("10.0.9.0/24")) // after the signature
	sibling := a.node(t, "b", "10.0.2.0/24")
	sibling.WireGuard = c.WireGuard
	a.sign(t, sibling)
	renamed := *c
	early := endpointsOf(t, b, "b", 4)
	early.Sequence = 9
	badBucket := store.Change{Entry: store.Entry{Key: TableTree + "bad/00",
		Value: []byte(`{"version":1,"members":[{"prefix":"192.0.2.7/32"}]}`)}}
	for name, ch := range map[string]store.Change{
		"an address of another host":    put(t, PodsTree+"b/0000", podOf("10.0.3.9", "app=web")),
		"an address of the host itself": put(t, PodsTree+"b/0000", podOf("192.0.2.1", "app=web")),
		"a label key of others":         put(t, PodsTree+"b/0000", podOf("10.0.2.9", "role=db")),
		"pods under another host's key": put(t, PodsTree+"c/0001", podOf("10.0.2.9", "app=web")),
		"a chunk too many": put(t, chunkKey("b", maxChunks), podOf("10.0.2.9",
			"app=web")),
		"a chunk in another form": put(t, PodsTree+"b/1", podOf("10.0.2.9", "app=web")),
		"not a document": {Entry: store.Entry{Key: PodsTree + "b/0000",
			Value: []byte("{")}},
		"a certificate that it signed":     put(t, NodeTree+"b", &stolen),
		"a certificate with a wider range": put(t, NodeTree+"b", wider),
		"another host's certificate":       put(t, NodeTree+"b", &renamed),
		"another host's key":               put(t, NodeTree+"b", sibling),
		"a range of another host":          put(t, NodeTree+"b", a.node(t, "b", "10.0.3.128/25")),
		"a new host with a taken range":    put(t, NodeTree+"d", a.node(t, "d", "10.0.0.0/16")),
		"endpoints of another's key":       put(t, EndpointKey+"b", endpointsOf(t, b, "c", 8)),
		"endpoints of another":             put(t, EndpointKey+"b", endpointsOf(t, c, "c", 8)),
		"an old sequence number":           put(t, EndpointKey+"b", endpointsOf(t, b, "b", 4)),
		"the same sequence number": put(t, EndpointKey+"b",
			resigned(t, endpointsOf(t, b, "b", 5))),
		"a sequence number not signed": put(t, EndpointKey+"b", early),
		"a table's wrong bucket":       badBucket,
		"another cluster":              put(t, IdentityKey, &Identity{ID: Serial{2}, Epoch: 7}),
		"an old epoch":                 put(t, IdentityKey, &Identity{ID: Serial{1}, Epoch: 1}),
		"an old version":               put(t, HeadKey, &Head{Number: Number{2, 4}, By: "x"}),
		"an old epoch's version":       put(t, HeadKey, &Head{Number: Number{1, 9}, By: "x"}),
		"another version of a number":  put(t, HeadKey, &Head{Number: Number{2, 5}, By: "y"}),
	} {
		t.Run(name, func(t *testing.T) { a.refuses(t, b, c, ch) })
	}
}

// refuses applies a change to what b and c have written: it is a claim without an effect, also
// after a start.
func (a *authority) refuses(t *testing.T, b, c *Node, ch store.Change) {
	d := NewDesired("a", a.trust, nil)
	d.trust.Epoch = 2
	key := BucketKey("bad", netip.MustParsePrefix("192.0.2.1/32"))
	value := uint32(7)
	first := d.Apply([]store.Change{put(t, EndpointKey+"b", endpointsOf(t, b, "b", 5)),
		put(t, HeadKey, &Head{Number: Number{2, 5}, By: "x"}),
		put(t, NodeTree+"b", b), put(t, NodeTree+"c", c),
		put(t, PodsTree+"b/0000", podOf("10.0.2.1", "app=web")),
		put(t, key, &Members{Members: []Member{{netip.MustParsePrefix("192.0.2.1/32"),
			value}}})})
	want := view{hosts: map[string]string{"b": "[10.0.2.0/24] [192.0.2.1:1005]",
		"c": "[10.0.3.0/24] []"}, labels: map[Label]bool{{"app=web",
		netip.MustParseAddr("10.0.2.1")}: true}, head: "2.5 x"}
	if got := viewOf(d); len(first.Claims) > 0 || got.String() != want.String() {
		t.Fatalf("first: %v %v", got, first.Claims)
	}
	e := d.Apply([]store.Change{ch})
	if got := viewOf(d); got.String() != want.String() {
		t.Errorf("is now %v, want %v", got, want)
	}
	if len(e.Claims) != 1 || e.Claims[0].Key != ch.Key {
		t.Errorf("claims: %v", e.Claims)
	}
	if len(e.Hosts)+len(e.Labels)+len(e.Shared) > 0 || e.Head != nil {
		t.Errorf("effects: %+v", e)
	}
	again := NewDesired("a", d.Trust(), d.Revoked())
	again.Load(d.LastGood(), []store.Entry{withRevision(put(t, HeadKey,
		&Head{Number: Number{2, 5}, By: "x"}), 1), withRevision(put(t, NodeTree+"b", b), 1),
		withRevision(put(t, NodeTree+"c", c), 1),
		withRevision(put(t, EndpointKey+"b", endpointsOf(t, b, "b", 5)), 1),
		withRevision(put(t, PodsTree+"b/0000", podOf("10.0.2.1", "app=web")), 1),
		withRevision(ch, 2)})
	if got := viewOf(again); got.String() != want.String() {
		t.Errorf("after a start %v, want %v", got, want)
	}
}

func withRevision(ch store.Change, revision int64) store.Entry {
	ch.Revision = revision
	return ch.Entry
}

func resigned(t *testing.T, e *Endpoints) *Endpoints {
	e.Addrs[0] = netip.AddrPortFrom(netip.MustParseAddr("192.0.2.66"), 1)
	if err := e.Sign("b", keyOf("b")); err != nil {
		t.Fatal(err)
	}
	return e
}

// view is what a Desired has, for comparison.
type view struct {
	hosts  map[string]string
	labels map[Label]bool
	head   string
}

func (v view) String() string {
	var labels []string
	for l := range v.labels {
		labels = append(labels, fmt.Sprint(l))
	}
	slices.Sort(labels)
	return fmt.Sprint(v.hosts, labels, v.head)
}

func viewOf(d *Desired) view {
	v := view{hosts: map[string]string{}, labels: map[Label]bool{}}
	for _, h := range d.Hosts() {
		v.hosts[h.Name] = fmt.Sprint(h.Node.Ranges, h.Addrs)
	}
	for l := range d.labels.all() {
		v.labels[l] = true
	}
	if d.head != nil {
		v.head = d.head.Number.String() + " " + d.head.By
	}
	return v
}

// TestRemovedHost: a removal record ends everything that the host had, its certificate never counts
// again, and its range is free for another one.
func TestRemovedHost(t *testing.T) {
	a := newAuthority()
	b := a.node(t, "b", "10.0.2.0/24")
	d := NewDesired("a", a.trust, nil)
	d.Apply([]store.Change{put(t, NodeTree+"b", b), put(t, EndpointKey+"b",
		endpointsOf(t, b, "b", 1)), put(t, PodsTree+"b/0000", podOf("10.0.2.1", "app=web"))})
	successor := a.node(t, "d", "10.0.2.0/24")
	if e := d.Apply([]store.Change{put(t, NodeTree+"d", successor)}); len(e.Claims) != 1 {
		t.Fatalf("a taken range: %+v", e)
	}
	// the keys of the host stay: the store was stolen, or more transactions follow
	e := d.Apply([]store.Change{put(t, RemovedTree+"node/b",
		&RemovalRecord{Serials: []Serial{b.Serial}})})
	if l := (Label{"app=web", netip.MustParseAddr("10.0.2.1")}); len(e.Labels) != 1 ||
		e.Labels[l] ||
		len(e.Hosts) != 2 || e.Hosts[0].Node != nil || e.Hosts[1].Name != "d" ||
		e.Hosts[1].Node == nil || !slices.Equal(e.Revoked, []Serial{b.Serial}) {
		t.Errorf("effects: %+v", e)
	}
	d.Apply([]store.Change{gone(NodeTree + "d")})
	if e := d.Apply([]store.Change{gone(RemovedTree + "node/b"), gone(NodeTree + "b"),
		gone(PodsTree + "b/0000"), gone(EndpointKey + "b")}); len(e.Labels)+len(e.Hosts) > 0 {
		t.Errorf("effects: %+v", e)
	}
	for _, x := range []*Desired{d, NewDesired("a", a.trust, d.Revoked())} {
		e := x.Apply([]store.Change{put(t, NodeTree+"b", b)})
		if x.Node("b") != nil || len(e.Claims) != 1 {
			t.Errorf("an old backup gives a removed host its rights back: %+v", e)
		}
	}
	again := a.node(t, "b", "10.0.2.0/24")
	again.Serial[0]++
	if d.Apply([]store.Change{put(t, NodeTree+"b", a.sign(t, again))}); d.Node("b") == nil {
		t.Error("a host with a new certificate is refused")
	}
}

// TestDesiredIsWhatItWouldBeFromTheStart: after any sequence of changes, good and bad, the effects
// add up to what is there, and a start from the copy gives the same.
func TestDesiredIsWhatItWouldBeFromTheStart(t *testing.T) {
	a := newAuthority()
	names := []string{"b", "c", "d"}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 17))
		d := NewDesired("a", a.trust, nil)
		if seed%2 == 1 {
			d.maxKept = 300 // of one or two values
		}
		entries := map[string]store.Entry{}
		labels := map[Label]bool{}
		hosts := map[string]string{}
		shared := map[SharedMember]uint32{}
		for revision := range int64(60) {
			var changes []store.Change
			for range 1 + random.IntN(3) {
				ch := a.random(t, random, names)
				if slices.ContainsFunc(changes, func(c store.Change) bool {
					return c.Key == ch.Key
				}) {
					continue
				}
				if ch.Revision = revision + 1; ch.Deleted {
					delete(entries, ch.Key)
				} else {
					entries[ch.Key] = ch.Entry
				}
				changes = append(changes, ch)
			}
			e := d.Apply(changes)
			for l, is := range e.Labels {
				if labels[l] == is {
					t.Fatalf("seed %d: label %v is %v already", seed, l, is)
				}
				if labels[l] = is; !is {
					delete(labels, l)
				}
			}
			for _, h := range e.Hosts {
				if hosts[h.Name] = ""; h.Node != nil {
					hosts[h.Name] = fmt.Sprint(h.Node.Ranges, h.Addrs)
				} else {
					delete(hosts, h.Name)
				}
			}
			for s, v := range e.Shared {
				if delete(shared, s); v != nil {
					shared[s] = *v
				}
			}
			got := viewOf(d)
			if sum := (view{hosts, labels, got.head}); got.String() != sum.String() {
				t.Fatalf("seed %d, step %d: it is %v, the effects add up to %v", seed, revision,
					got, sum)
			}
			checkOwners(t, d)
		}
		again := NewDesired("a", d.Trust(), d.Revoked())
		again.maxKept = d.maxKept
		all := slices.Collect(maps.Values(entries))
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		again.Load(d.LastGood(), all)
		if got, want := viewOf(again), viewOf(d); got.String() != want.String() {
			t.Fatalf("seed %d: a start gives %v, not %v; last good %v", seed, got,
				want, d.LastGood())
		}
	}
}

// checkOwners: every address with a label lies in a range of exactly one host.
func checkOwners(t *testing.T, d *Desired) {
	t.Helper()
	for l := range d.labels.all() {
		owners := 0
		for _, h := range d.Hosts() {
			if h.Node.Owns(l.Addr) {
				owners++
			}
		}
		if owners != 1 {
			t.Fatalf("%v has %d owners", l, owners)
		}
	}
}

// random is a change that may be good or not.
func (a *authority) random(t *testing.T, r *rand.Rand, names []string) store.Change {
	i := r.IntN(len(names))
	name := names[i]
	n := a.node(t, name, fmt.Sprintf("10.0.%d.0/24", r.IntN(4)))
	n.Serial[0] += byte(r.IntN(2))
	a.sign(t, n)
	key := chunkKey(name, r.IntN(2))
	switch r.IntN(12) {
	case 0, 1:
		return put(t, NodeTree+name, n)
	case 2:
		n.Ranges = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/22")}
		return put(t, NodeTree+name, n)
	case 3:
		return gone(NodeTree + name)
	case 4, 5, 6, 7:
		label := []string{"app=web", "app=db", "x=y"}[r.IntN(3)]
		return put(t, key, podOf(fmt.Sprintf("10.0.%d.%d", r.IntN(4), r.IntN(3)), label))
	case 8:
		if r.IntN(2) == 0 {
			return store.Change{Entry: store.Entry{Key: key}}
		}
		return gone(key)
	case 9:
		return put(t, EndpointKey+name, endpointsOf(t, n, name, uint64(1+r.IntN(4))))
	case 10:
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(4))}), 32)
		return put(t, BucketKey("t", p), &Members{Members: []Member{{p, uint32(r.IntN(2))}}})
	}
	if r.IntN(4) > 0 {
		return gone(RemovedTree + "node/" + name)
	}
	return put(t, RemovedTree+"node/"+name, &RemovalRecord{Serials: []Serial{n.Serial}})
}

// TestHeadOfLaterEpoch: a head of an epoch that the cluster has not begun is ignored: every head of
// the cluster's own, and of its next epochs, would be older for ever. In a copy, and in one step,
// the order of the two does not matter.
func TestHeadOfLaterEpoch(t *testing.T) {
	a := newAuthority()
	head := func(epoch, count uint64) store.Change {
		return put(t, HeadKey, &Head{Number: Number{Epoch: epoch, Count: count}, By: "a"})
	}
	identity := func(epoch uint64) store.Change {
		return put(t, IdentityKey, &Identity{ID: a.trust.Cluster, Epoch: epoch})
	}
	d := NewDesired("a", a.trust, nil)
	d.Apply([]store.Change{identity(1), head(1, 1)})
	if e := d.Apply([]store.Change{head(1<<40, 1)}); len(e.Claims) != 1 || e.Head != nil {
		t.Errorf("claims %v, head %v", e.Claims, e.Head)
	}
	if e := d.Apply([]store.Change{head(1, 2)}); e.Head == nil {
		t.Errorf("the next version: %v", e.Claims)
	}
	if e := d.Apply([]store.Change{head(2, 1), identity(2)}); e.Head == nil || len(e.Claims) > 0 {
		t.Errorf("the next epoch: %v", e.Claims)
	}
	d = NewDesired("a", a.trust, nil)
	if e := d.Load(nil, []store.Entry{withRevision(head(2, 1), 5),
		withRevision(identity(2), 9)}); e.Head == nil || len(e.Claims) > 0 {
		t.Errorf("from a copy: %v", e.Claims)
	}
}
