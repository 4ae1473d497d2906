package etcd

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
)

// TestSockets: a member of one listens at files in its directory only, which no one else can reach.
// An abstract socket has no directory: every process on the host can connect to it.
func TestSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := Start(t.Context(), MemberConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	own := map[string]bool{}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil {
			own[to] = true
		}
	}
	text, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	const listens = "00010000" // __SO_ACCEPTCON
	found := 0
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 7 || f[3] != listens || !own["socket:["+f[6]+"]"] {
			continue
		}
		found++
		if len(f) < 8 || !strings.HasPrefix(f[7], dir+"/") {
			t.Errorf("listens at %v", f[7:])
		}
	}
	if found != 2 {
		t.Errorf("%d sockets, expected client and peer", found)
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" && own["socket:["+f[9]+"]"] {
				t.Errorf("listens at %s of %s", f[1], table)
			}
		}
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestMaxRead: a read of more than a driver may return ends with an error, not with all of it in
// memory.
func TestMaxRead(t *testing.T) {
	d, s := smallMember(t)
	value := make([]byte, 512<<10)
	for _, key := range []string{"w/a", "w/b", "w/c"} {
		if _, err := d.Commit(t.Context(), store.Txn{Put: []store.Entry{{Key: key,
			Value: value}}}); err != nil {
			t.Fatal(err)
		}
	}
	bounded, err := Open(Config{MaxRead: 1 << 20,
		Client: clientv3.Config{Endpoints: []string{s.member.Endpoint()}}})
	if err != nil {
		t.Fatal(err)
	}
	defer bounded.Close()
	_, err = bounded.Read(t.Context(), "w/", 0)
	var large *store.LargeError
	if !errors.As(err, &large) || !strings.Contains(err.Error(), "read w/") {
		t.Errorf("more than may be read: %v", err)
	}
	if got, err := bounded.Read(t.Context(), "w/a", 0); err != nil || len(got.Entries) != 1 {
		t.Errorf("one of them: %d, %v", len(got.Entries), err)
	}
	if got, err := d.Read(t.Context(), "w/", 0); err != nil || len(got.Entries) != 3 {
		t.Errorf("without a bound: %d, %v", len(got.Entries), err)
	}
}

// TestRunsOnce: a second start of a member is refused at once, and takes nothing away from the
// first one, whose clients are answered.
func TestRunsOnce(t *testing.T) {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	m, err := Start(t.Context(), MemberConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Start(t.Context(), MemberConfig{Dir: dir}); !errors.Is(err, ErrRuns) {
		second.Close()
		t.Errorf("a second start: %v", err)
	}
	d, err := Open(Config{Client: clientv3.Config{Endpoints: []string{m.Endpoint()}}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Read(t.Context(), "/weir/1/w/x", 0); err != nil {
		t.Errorf("after a second start: %v", err)
	}
	m.Close()
	if m, err = Start(t.Context(), MemberConfig{Dir: dir}); err != nil {
		t.Fatalf("after the first one has ended: %v", err)
	}
	m.Close()
}
