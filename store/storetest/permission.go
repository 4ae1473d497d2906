package storetest

import (
	"testing"

	"github.com/weirnet/weir/store"
)

// testPermission: one that may read w/ and write two places of its own does nothing else, whatever
// the name of a key begins with.
func testPermission(t *testing.T, c Cluster) {
	all := c.Open(t, nil)
	first := commitPut(t, all, put("w/at/b", "1"), put("w/at/bob", "1"), put("w/head", "1"),
		put("w/pods/b/0", "1"), put("x/range/r", "1"), put("x/report/b", "1"))
	host := c.Open(t, []store.Grant{{Name: "w/"}, {Name: "w/at/b", Write: true},
		{Name: "w/pods/b/", Write: true}, {Name: "x/report/b", Write: true}})
	w := watch(t, host, "w/", first)

	revision := commit(t, host, store.Txn{Compare: []store.Compare{{Key: "w/head",
		Revision: first}}, Put: []store.Entry{put("w/at/b", "2"), put("w/pods/b/1", "2"),
		put("x/report/b", "2")}, Delete: []string{"w/pods/b/0"}})
	if b := w.next(t); b.Revision != revision || len(b.Changes) != 3 {
		t.Errorf("revision %d: %s", b.Revision, show(b.Changes))
	}
	before := showEntries(read(t, all, "w/", 0).Entries) + showEntries(read(t, all, "x/",
		0).Entries)

	own := put("w/at/b", "3")
	for what, x := range map[string]store.Txn{
		"the rules":                    {Put: []store.Entry{put("w/head", "2")}},
		"an own key with them":         {Put: []store.Entry{own, put("w/head", "2")}},
		"a name that begins alike":     {Put: []store.Entry{put("w/at/bob", "2")}},
		"below an own key":             {Put: []store.Entry{put("w/at/b/c", "2")}},
		"a subtree that begins alike":  {Put: []store.Entry{put("w/pods/bob/0", "2")}},
		"the name of an own subtree":   {Put: []store.Entry{put("w/pods/b", "2")}},
		"behind an own subtree":        {Put: []store.Entry{put("w/pods/b0", "2")}},
		"a new place":                  {Put: []store.Entry{put("v", "2")}},
		"a deletion":                   {Delete: []string{"w/at/bob"}},
		"a deletion of what is absent": {Delete: []string{"w/at/c"}},
		"what it may not even read":    {Put: []store.Entry{put("x/range/r", "2")}},
		"a question about that": {Put: []store.Entry{own},
			Compare: []store.Compare{{Key: "x/range/r", Revision: first}}},
		"a question whose answer is no": {Put: []store.Entry{own},
			Compare: []store.Compare{{Key: "x/range/r", Revision: first + 1}}},
	} {
		_, err := host.Commit(limited(t), x)
		expectError(t, "write "+what, err, store.ErrPermission)
	}
	for _, name := range []string{"x/", "x/range/r", "x/report/", "w", "v", "/"} {
		_, err := host.Read(limited(t), name, 0)
		expectError(t, "read "+name, err, store.ErrPermission)
		expectError(t, "watch "+name, watch(t, host, name, first).failure(t),
			store.ErrPermission)
	}
	after := showEntries(read(t, all, "w/", 0).Entries) + showEntries(read(t, all, "x/",
		0).Entries)
	if before != after {
		t.Errorf("changed:\n%s\n%s", before, after)
	}
}
