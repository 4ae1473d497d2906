package members_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
)

// TestRemovedForEver: a removed host stays removed when another host of its name has joined, with
// all certificates that it had. Hosts that were away meanwhile, or came later, do not believe an
// attacker in the store that puts one back, and a store host that was away restores none.
func TestRemovedForEver(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	by, away := f.signing(t)
	_, later := f.signing(t)
	first := f.join(t, "b")
	_, firstEntry := f.node(t, "b")
	f.apply(t, away)
	j := f.joining(t, f.invite(t, members.Invitation{}), "b")
	j.Old = first.Credential.Key
	second, err := j.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, secondEntry := f.node(t, "b")
	backup, err := f.model.Read(t.Context(), cluster.Root, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
		t.Fatal(err)
	}
	third := f.join(t, "b")
	now, nowEntry := f.node(t, "b")
	get := server.Get(func(key string) (store.Entry, bool) { return f.value(t, key) })
	for what, c := range map[string]*identity.Credential{"first": first.Credential,
		"second": second.Credential, "third": third.Credential} {
		p, err := c.Peer()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := members.Admit(get, p); (err == nil) != (what == "third") {
			t.Errorf("weir-store admits the %s certificate: %v", what, err == nil)
		}
	}
	revoked := f.revokedNow(t)

	for _, e := range []store.Entry{nowEntry, firstEntry, secondEntry} {
		f.write(t, e.Key, e.Value)
		for what, host := range map[string]*cluster.Desired{"away": away, "later": later} {
			f.apply(t, host)
			if n := host.Node("b"); n == nil || n.Serial != now.Serial {
				t.Errorf("a host that was %s accepts another certificate than %v", what, now.Serial)
			}
		}
	}
	s := storetest.NewModel(time.Second)
	if _, err := restore(t, s, backup.Entries, members.PriorState{Epoch: 1,
		RevokedHosts: revoked}, nil); err != nil {
		t.Fatal(err)
	}
	if _, there := (&founded{model: s}).value(t, cluster.NodeTree+"b"); there {
		t.Error("a backup puts it back")
	}
}

// TestRemovalRecordHasSpace: the removal of a host always fits into the removal record of its name,
// because a join is refused before. A removal record that is not one does not refuse a removal.
func TestRemovalRecordHasSpace(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.join(t, "b")
	const key = cluster.RemovedTree + "node/b"
	f.write(t, key, []byte("garbage"))
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Error(err)
	}
	var record cluster.RemovalRecord
	for record.HasSpace() {
		var s cluster.Serial
		binary.BigEndian.PutUint32(s[:], uint32(len(record.Serials)+1))
		record.Serials = append(record.Serials, s)
	}
	value, err := cluster.Encode(&record)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, key, value)
	_, err = f.joining(t, f.invite(t, members.Invitation{}), "b").Do(t.Context())
	if err == nil || !strings.Contains(err.Error(), "another name") {
		t.Errorf("the join: %v", err)
	}
}

// TestRemovedDespiteGarbage: whatever an attacker in the store has written, a host can be removed.
func TestRemovedDespiteGarbage(t *testing.T) {
	var full cluster.RemovalRecord
	const each = 2*len(cluster.Serial{}) + len(`"",`)
	for i := range (512<<10 - 100) / each { // with the CA's signature, no more fit into a document
		var s cluster.Serial
		binary.BigEndian.PutUint32(s[:], uint32(i+1))
		full.Serials = append(full.Serials, s)
	}
	serials, err := cluster.Encode(&full)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []store.Entry{
		{Key: cluster.RangeTree + "garbage"},
		{Key: cluster.RangeTree + "10.0.7.0_24", Value: []byte("garbage")},
		{Key: cluster.MembersKey, Value: []byte("garbage")},
		{Key: cluster.NodeTree + "b", Value: []byte("garbage")},
		{Key: cluster.RemovedTree + "node/b", Value: serials},
	} {
		f := found(t, pool("10.0.0.0/16", 24))
		f.join(t, "b")
		b, _ := f.node(t, "b")
		f.write(t, bad.Key, bad.Value)
		if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
			t.Errorf("with garbage in %s: %v", bad.Key, err)
			continue
		}
		if !slices.Contains(f.revokedNow(t), b.Serial) {
			t.Errorf("with garbage in %s: it is not revoked", bad.Key)
		}
		if _, there := f.value(t, cluster.NodeTree+"b"); there {
			t.Errorf("with garbage in %s: its certificate is there", bad.Key)
		}
		if bad.Key == cluster.RangeTree+"garbage" {
			f.join(t, "c")
		}
	}
}

// TestRemovedDespiteForgery: whatever certificate an attacker in the store has put in the place of
// that of a host, the host can be removed. This holds with and without the rules lock, and no other
// host is removed.
func TestRemovedDespiteForgery(t *testing.T) {
	for _, locked := range []bool{false, true} {
		for _, what := range []string{"that of c", "one without the CA's signature"} {
			f := found(t, pool("10.0.0.0/16", 24))
			f.join(t, "b")
			f.join(t, "c")
			b, _ := f.node(t, "b")
			c, other := f.node(t, "c")
			forged := other.Value
			if what != "that of c" {
				changed, err := b, error(nil)
				changed.Serial = c.Serial
				if forged, err = cluster.Encode(&changed); err != nil {
					t.Fatal(err)
				}
			}
			f.write(t, cluster.NodeTree+"b", forged)
			by := f.remover()
			if locked {
				by, _ = f.signing(t)
				by.Bound = f.certificates()
			}
			if err := members.Remove(t.Context(), f.model, "b", by); err != nil {
				t.Errorf("with %s, signed %v: %v", what, locked, err)
				continue
			}
			if _, there := f.value(t, cluster.NodeTree+"b"); there {
				t.Errorf("with %s, signed %v: the certificate is there", what, locked)
			}
			if got := f.revokedNow(t); !slices.Equal(got, []cluster.Serial{b.Serial}) {
				t.Errorf("with %s, signed %v: %v are revoked, not %v", what, locked, got, b.Serial)
			}
		}
	}
}

// TestRemovedDespiteRanges: however many ranges an attacker in the store has given to a host, it
// can be removed, and its own range is released.
func TestRemovedDespiteRanges(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	joined := f.join(t, "b")
	for i := range 2 * store.MaxOperations {
		f.write(t, fmt.Sprintf("%s9.%d.0.0_16", cluster.RangeTree, i), []byte(`{"name":"b"}`))
	}
	for i := range store.MaxOperations {
		f.write(t, fmt.Sprintf("%sb/%04d", cluster.PodsTree, i), []byte("1"))
	}
	if err := members.Remove(t.Context(), f.model, "b", f.remover()); err != nil {
		t.Fatal(err)
	}
	if e, _ := f.value(t, cluster.RangeKey(joined.Ranges[0])); !strings.Contains(string(e.Value),
		`"released":true`) {
		t.Errorf("its range: %s", e.Value)
	}
	got, err := f.model.Read(t.Context(), cluster.PodsTree+"b/", 0)
	if err != nil || len(got.Entries) > 0 {
		t.Errorf("%d chunks of pods, %v", len(got.Entries), err)
	}
}

// TestGarbageInThePlaceOfAHost: an attacker in the store has written something in the place of a
// certificate of a host that there never was. It can be deleted, and the name is free then. What a
// later Weir has written stays.
func TestGarbageInThePlaceOfAHost(t *testing.T) {
	f := found(t, pool("10.0.0.0/16", 24))
	f.write(t, cluster.NodeTree+"b", []byte("garbage"))
	f.write(t, cluster.NodeTree+"c", []byte(`{"version":2}`))
	f.join(t, "d")
	for name, deleted := range map[string]bool{"b": true, "c": false} {
		err := members.Remove(t.Context(), f.model, name, f.remover())
		if err == nil || strings.Contains(err.Error(), "there is no host") != deleted {
			t.Errorf("%s: %v", name, err)
		}
		if _, there := f.value(t, cluster.NodeTree+name); there == deleted {
			t.Errorf("%s is there: %v", name, there)
		}
	}
	f.join(t, "b")
}
