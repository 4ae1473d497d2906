package rules

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// nextManager returns a Manager that comes after another one on the same host.
func nextManager(t *testing.T, b *Manager) *Manager {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	next, _ := newManager(t)
	next.store.path, next.store.file, next.config.Default = b.store.path, "", b.config.Default
	return next
}

// TestStartWithoutTheCopy: without the copy of the store a host of a cluster begins with the rules
// that the cluster gave it last, not with the rule file from before. Out of the cluster it has them
// too, until the owner edits the file.
func TestStartWithoutTheCopy(t *testing.T) {
	b, _ := newManager(t)
	b.store.file = "" // as New makes it
	b.config.Default = filepath.Join(t.TempDir(), "rules")
	write := func(text string) {
		if err := os.WriteFile(b.config.Default, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("add 1 allow ip from any to any\n")
	begin := func(b *Manager, shared *Version, member bool) string {
		t.Helper()
		b.config.Shared = nil
		if member {
			b.config.Shared = func() (Version, bool) {
				if shared == nil {
					return Version{}, false
				}
				return *shared, true
			}
		}
		first, err := b.Initial()
		if err == nil {
			err = b.Begin(first)
		}
		if err != nil {
			t.Fatal(err)
		}
		return first.Set.Rules[0].Text()
	}
	const ours, edited = "allow tcp from any to any 80", "allow udp from any to any"
	shared := version(t, b, "add 100 "+ours+"\n")
	begin(b, &shared, true)
	for i, c := range []struct {
		member bool
		file   string // written before; "" for none
		want   string
	}{{true, "", ours}, {true, "add 1 " + edited + "\n", ours}, {false, "", ours},
		{false, "", ours}, {false, "add 2 " + edited + "\n", edited}} {
		if c.file != "" {
			write(c.file)
		}
		b = nextManager(t, b)
		if got := begin(b, nil, c.member); !strings.Contains(got, c.want) {
			t.Errorf("start %d begins with %s, want %s", i, got, c.want)
		}
	}
}

// TestTablesOfTheClusterStayFilled: a host that has joined a cluster and cannot read how does not
// begin with rules that ask about a table that the cluster fills. At a boot it is locked down.
func TestTablesOfTheClusterStayFilled(t *testing.T) {
	b, _ := newManager(t)
	must(t, b, "table own create", "add 1 deny ip from table(own) to any",
		"add 2 allow ip from any to any")
	next := nextManager(t, b)
	next.config.Unfollowed = func() error { return errors.New("the file member is damaged") }
	next.config.LockDown = func() bool { return false }
	if _, err := next.Initial(); err != nil {
		t.Errorf("with tables of its own: %v", err)
	}
	must(t, next, "add 1 deny ip from table(blocklist) to any")
	next = nextManager(t, next)
	next.config.LockDown = func() bool { return false }
	if _, err := next.Initial(); err != nil {
		t.Errorf("on a host without a cluster: %v", err)
	}
	next.config.Unfollowed = func() error { return errors.New("the file member is damaged") }
	if _, err := next.Initial(); !errors.As(err, new(errUnfilled)) {
		t.Errorf("the tables are empty: %v", err)
	}
	next.config.LockDown = func() bool { return true }
	if first, err := next.Initial(); err != nil || first.lockDown == nil ||
		!strings.Contains(first.lockDown.What, "table blocklist") {
		t.Errorf("at a boot: %+v, %v", first, err)
	}
}
