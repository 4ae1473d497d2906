package members_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
)

// TestStolenHostFills: what the credential of a host may write is in the memory of every host. It
// is a few keys with values of bounded size, none of which it deletes. It is so much an hour that
// the store's database does not become full, whatever the number of its connections.
func TestStolenHostFills(t *testing.T) {
	f := found(t)
	f.join(t, "bob")
	stolen := f.join(t, "b").Credential
	host := f.connect(t, stolen)
	chunk := func(n int) string { return fmt.Sprintf("%sb/%04d", cluster.PodsTree, n) }
	large := func(key string, n int) store.Txn { return put(key, string(make([]byte, n))) }
	for what, x := range map[string]store.Txn{
		"another key of pods":      put(cluster.PodsTree+"b/x", "1"),
		"a chunk in another form":  put(cluster.PodsTree+"b/1", "1"),
		"a subtree in a chunk":     put(chunk(0)+"/0", "1"),
		"a chunk too many":         put(chunk(128), "1"),
		"a chunk of 512 KiB":       large(chunk(0), 512<<10),
		"endpoints of 64 KiB":      large(cluster.EndpointKey+"b", 64<<10),
		"a report of 64 KiB":       large(cluster.ReportTree+"b", 64<<10),
		"the deletion of a chunk":  {Delete: []string{chunk(0)}},
		"the deletion of a report": {Delete: []string{cluster.ReportTree + "b"}},
	} {
		if _, err := host.Commit(t.Context(), x); !errors.Is(err, store.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What is too much waits for its turn. The test does not.
	ctx, waits := context.WithCancel(t.Context())
	defer waits()
	go func() {
		for f.server.Counters.Throttled.Load() == 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		waits()
	}()
	written, connected := 0, host
	for n := range 128 {
		var x store.Txn
		for i := range 3 {
			x.Put = append(x.Put, store.Entry{Key: chunk((3*n + i) % 128),
				Value: make([]byte, 256<<10)})
		}
		if n%2 == 1 { // always the newest connection: weir-store ends the oldest of too many
			connected = f.connect(t, stolen)
		}
		if _, err := connected.Commit(ctx, x); ctx.Err() != nil {
			break
		} else if err != nil {
			t.Fatalf("after %d bytes: %v", written, err)
		}
		written += 3 * 256 << 10
	}
	if written < 8<<20 || written > 20<<20 {
		t.Errorf("it wrote %d bytes at once", written)
	}
	if f.server.Counters.Throttled.Load() == 0 {
		t.Error("that is not counted")
	}
	other := f.connect(t, f.join(t, "c").Credential)
	if _, err := other.Commit(t.Context(), put(cluster.ReportTree+"c", "1")); err != nil {
		t.Errorf("another host: %v", err)
	}
}

// TestStolenHostReads: a host, or a feed, asks for little at once, however much others or itself
// wrote. weir-store has an answer, and the events of a watch, in its memory until they are taken.
func TestStolenHostReads(t *testing.T) {
	f := found(t)
	host := f.connect(t, f.join(t, "b").Credential)
	digest, texts, err := cluster.EncodeText("add 100 allow ip from any to any\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.model.Commit(t.Context(), store.Txn{Put: texts}); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%s%v/", cluster.TextTree, digest)
	feed := f.feed(t, "banned")
	banned := cluster.TableTree + "banned/"
	for key, by := range map[string]store.Store{cluster.EndpointKey + "b": host,
		banned + "0a": feed} {
		if _, err := by.Commit(t.Context(), put(key, "1")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		by   store.Store
		name string
		may  bool
	}{
		{host, cluster.Watched, false}, {host, cluster.TextTree, false},
		{host, cluster.PodsTree, false}, {host, cluster.PodsTree + "c/", false},
		{host, text, true}, {host, cluster.PodsTree + "b/", true}, {host, cluster.HeadKey, true},
		{feed, banned, false}, {feed, banned + "0a", true},
	} {
		if _, err := c.by.Read(t.Context(), c.name, 0); c.may != (err == nil) ||
			err != nil && !errors.Is(err, store.ErrPermission) {
			t.Errorf("read %s: %v", c.name, err)
		}
	}
	for name, by := range map[string]store.Store{cluster.Watched: host, text: host,
		cluster.EndpointKey + "b": host, banned: feed} {
		if err := watchOnce(t, by, name); !errors.Is(err, store.ErrPermission) {
			t.Errorf("watch %s: %v", name, err)
		}
	}
}

// watchOnce returns what a watch begins with; it has something to say.
func watchOnce(t *testing.T, s store.Store, name string) error {
	t.Helper()
	for _, err := range s.Watch(t.Context(), name, 1) {
		return err
	}
	return nil
}

// TestStolenFeed: a feed writes the buckets of its table, and no other keys below it.
func TestStolenFeed(t *testing.T) {
	f := found(t)
	feed := f.feed(t, "banned")
	tree := cluster.TableTree + "banned/"
	if _, err := feed.Commit(t.Context(), put(tree+"0a", "1")); err != nil {
		t.Error(err)
	}
	for what, x := range map[string]store.Txn{
		"a key that is not a bucket":  put(tree+"x", "1"),
		"a bucket in another form":    put(tree+"0A", "1"),
		"a bucket too many":           put(tree+"100", "1"),
		"the deletion of a bucket":    {Delete: []string{tree + "0a"}},
		"another table":               put(cluster.TableTree+"web/0a", "1"),
		"a table that begins like it": put(cluster.TableTree+"banned2/0a", "1"),
	} {
		if _, err := feed.Commit(t.Context(), x); !errors.Is(err, store.ErrPermission) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// feed connects a feed whose certificate is in force.
func (f *founded) feed(t *testing.T, table string) store.Store {
	t.Helper()
	id := identity.ID{Kind: identity.Feed, Name: table}
	c, err := identity.Issue(f.ca, id)
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Peer()
	if err != nil {
		t.Fatal(err)
	}
	value, err := cluster.Encode(&cluster.Issued{Certificates: []cluster.IssuedCertificate{
		{ID: id.String(), Serial: cluster.Serial(p.Serial)}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.model.Commit(t.Context(), put(cluster.IssuedKey, string(value))); err != nil {
		t.Fatal(err)
	}
	return f.connect(t, c)
}
