package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

func TestNames(t *testing.T) {
	for _, name := range []string{"a", "host-1", "0", "web.example.org", "db_2"} {
		if err := CheckName(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"", "/", "a/b", "A", "-a", ".", "..", "a b", "a\x00", "\xff",
		"a:b", strings.Repeat("a", 64)} {
		if CheckName(name) == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

func TestRangeKeys(t *testing.T) {
	for _, text := range []string{"10.1.2.0/24", "fd00:1::/64", "0.0.0.0/0"} {
		r := netip.MustParsePrefix(text)
		if got, err := parseRangeKey(RangeKey(r)); got != r || err != nil {
			t.Errorf("%v became %s and %v, %v", r, RangeKey(r), got, err)
		}
	}
	for _, bad := range []string{"10.1.2.3_24", "10.1.2.0_33", "10.1.2.0", "x_24", "10.1.2.0_24/"} {
		if got, err := parseRangeKey(RangeTree + bad); err == nil {
			t.Errorf("%s is %v", bad, got)
		}
	}
}

// places is a key of every kind, for the hosts a, b and bb.
func places() (keys []string) {
	keys = []string{IdentityKey, HeadKey, MembersKey, TextTree + "0123", InviteTree + "1",
		TableTree + "blocked/00", TableTree + "b/00",
		RangeKey(netip.MustParsePrefix("10.0.0.0/24")), RemovedTree + "node/b",
		RemovedTree + "table/b", Root + "other", "/other", Watched + "b", Asked + "b"}
	for _, name := range []string{"a", "b", "bb"} {
		keys = append(keys, NodeTree+name, EndpointKey+name, EndpointKey+name+"/0",
			PodsTree+name, PodsTree+name+"/0", PodsTree+name+"/b/0", ReportTree+name,
			ReportTree+name+"/0")
	}
	return keys
}

// TestAuthority tries to put and to delete every key as every identity, alone and beside a key that
// the identity may write. It compares with the list of what the identity may write.
func TestAuthority(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	own := PodsTree + "b/"
	for name, c := range map[string]struct {
		grants []store.Grant
		may    map[string]bool
	}{
		"host": {HostGrants("b"), map[string]bool{EndpointKey + "b": true, own + "0": true,
			own + "b/0": true, ReportTree + "b": true}},
		"feed": {FeedGrants("blocked"), map[string]bool{TableTree + "blocked/00": true}},
		"admin": {AdminGrants(), map[string]bool{HeadKey: true, TextTree + "0123": true,
			InviteTree + "1": true, TableTree + "blocked/00": true, TableTree + "b/00": true,
			RemovedTree + "table/b": true, RemovedTree + "node/b": true}}, // AdminMayWrite
	} {
		var mine string
		for key := range c.may {
			mine = max(mine, key)
		}
		s := store.Limit(storetest.NewModel(time.Minute), c.grants)
		for _, key := range places() {
			put := store.Entry{Key: key, Value: []byte("x")}
			for what, x := range map[string]store.Txn{
				"put":    {Put: []store.Entry{put}},
				"delete": {Delete: []string{key}},
				"beside": {Put: []store.Entry{put}, Delete: []string{mine}},
			} {
				if what == "beside" && key == mine {
					continue
				}
				_, err := s.Commit(ctx, x)
				if c.may[key] && err != nil || !c.may[key] && !errors.Is(err,
					store.ErrPermission) {
					t.Errorf("%s: %s %s: %v", name, what, key, err)
				}
			}
		}
	}
}

// TestHostReads: a host reads what every host keeps and texts, not invitations, ranges or reports.
func TestHostReads(t *testing.T) {
	s := store.Limit(storetest.NewModel(time.Minute), HostGrants("b"))
	for name, may := range map[string]bool{Watched: true, TextTree: true, ReportTree + "b": true,
		ReportTree: false, InviteTree: false, RangeTree: false, Root: false, "/": false,
		Asked: false, ReportTree + "bb": false} {
		if _, err := s.Read(t.Context(), name, 0); may != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// guarded returns what a host has of five others.
func guarded() *store.Guarded {
	s := store.Snapshot{Revision: 10}
	add := func(key string) { s.Entries = append(s.Entries, store.Entry{Key: key, Revision: 1}) }
	add(IdentityKey)
	add(HeadKey)
	add(MembersKey)
	add(TableTree + "blocked/00")
	for i := range 5 {
		name := fmt.Sprint(i)
		add(NodeTree + name)
		add(EndpointKey + name)
		for chunk := range 4 {
			add(fmt.Sprintf("%s%s/%d", PodsTree, name, chunk))
		}
	}
	return store.NewGuarded(Guard(), s)
}

func removal(key string) store.Change {
	return store.Change{Entry: store.Entry{Key: key}, Deleted: true}
}

// TestEmptiedStore: nothing of what a host knows goes with the store, and above all not its rules.
func TestEmptiedStore(t *testing.T) {
	d := guarded()
	if changes := d.Replace(store.Snapshot{Revision: 1}); len(changes) != 0 {
		t.Errorf("%d changes", len(changes))
	}
	if n := len(d.Enforced().Entries); n != 34 || len(d.Held()) != n {
		t.Errorf("%d keys are enforced, %d held", n, len(d.Held()))
	}
}

// TestRulesStay: a removal of one single key is held.
func TestRulesStay(t *testing.T) {
	for _, key := range []string{HeadKey, IdentityKey, MembersKey} {
		d := guarded()
		d.Step(store.Batch{Revision: 11, Changes: []store.Change{removal(key)}})
		if _, ok := store.NewCopy(d.Enforced()).Get(key); !ok {
			t.Errorf("%s was removed", key)
		}
	}
}

// TestNodeRemove: hosts that RemovedTree names go at once, however many, with all that they had;
// the table of the same name stays.
func TestNodeRemove(t *testing.T) {
	d := guarded()
	b := store.Batch{Revision: 11}
	for _, name := range []string{"0", "1", "2", "3"} {
		b.Changes = append(b.Changes,
			store.Change{Entry: store.Entry{Key: RemovedTree + "node/" + name, Revision: 11}},
			removal(NodeTree+name), removal(EndpointKey+name))
		for chunk := range 4 {
			b.Changes = append(b.Changes, removal(fmt.Sprintf("%s%s/%d", PodsTree, name, chunk)))
		}
	}
	b.Changes = append(b.Changes, removal(TableTree+"blocked/00"))
	changes := d.Step(b)
	if len(changes) != 4*7 || len(d.Held()) != 1 || d.Held()[0] != TableTree+"blocked/00" {
		t.Errorf("%d changes, held: %v", len(changes), d.Held())
	}
	d.Step(store.Batch{Revision: 12, Changes: []store.Change{
		{Entry: store.Entry{Key: RemovedTree + "table/blocked", Revision: 12}}}})
	if len(d.Held()) != 0 {
		t.Errorf("held although it is named now: %v", d.Held())
	}
}

// TestRemovalRecordOfEarlierHost: the removal record of an earlier host does not explain that the
// present host of its name is gone: an emptied store takes nothing of it away.
func TestRemovalRecordOfEarlierHost(t *testing.T) {
	a := newAuthority()
	b, earlier := a.node(t, "b", "10.0.2.0/24"), Serial{0, 1}
	keys := []string{NodeTree + "b", EndpointKey + "b", PodsTree + "b/0000"}
	record := func(serials ...Serial) store.Change {
		return put(t, RemovedTree+"node/b", &RemovalRecord{Serials: serials})
	}
	all := store.Snapshot{Entries: []store.Entry{put(t, keys[0], b).Entry,
		put(t, keys[1], endpointsOf(t, b, "b", 1)).Entry,
		put(t, keys[2], podOf("10.0.2.1", "app=web")).Entry, record(earlier).Entry}}
	d := NewDesired("x", a.trust, nil)
	g := store.NewGuarded(d.Guard(), all)
	d.Load(nil, all.Entries)
	emptied := store.Batch{Revision: 2}
	for _, key := range keys {
		emptied.Changes = append(emptied.Changes, removal(key))
	}
	if d.Apply(g.Step(emptied)); d.Node("b") == nil || len(g.Held()) != len(keys) {
		t.Errorf("held: %v, the host is %v", g.Held(), d.Node("b"))
	}
	d.Apply(g.Step(store.Batch{Revision: 3, Changes: []store.Change{record(earlier, b.Serial)}}))
	if d.Node("b") != nil || len(g.Held()) > 0 {
		t.Errorf("removed, and held: %v, the host is %v", g.Held(), d.Node("b"))
	}
}
