package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
	"github.com/weirnet/weir/store/storetest"
)

// joinable is a weir-store that hosts can join, on the model.
type joinable struct {
	model   *storetest.Model
	ca      *identity.CA
	id      cluster.Identity
	admin   *identity.Credential
	address string
}

func newJoinable(t *testing.T) *joinable {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	s := &joinable{model: storetest.NewModel(time.Minute), address: listener.Addr().String()}
	s.id = cluster.Identity{ID: cluster.Serial(identity.NewSerial()), Epoch: 1,
		Stores: []string{s.address}}
	s.ca, err = identity.NewCA(s.id.ID.String())
	must(err)
	s.id.CA = [][]byte{s.ca.Certificate()}
	s.admin, err = identity.Issue(s.ca, identity.ID{Kind: identity.Admin, Name: "a"})
	must(err)
	peer, err := s.admin.Peer()
	must(err)
	must(members.CreateCluster(t.Context(), s.model, s.id, peer))
	own, err := identity.Issue(s.ca, identity.ID{Kind: identity.Store, Name: "s"})
	must(err)
	config, err := own.ServerTLS()
	must(err)
	joiner := members.NewJoiner(s.model, s.ca)
	joiner.Pools = []cluster.Pool{}
	serves, err := server.New(server.Config{Store: s.model, Name: cluster.Watched, TLS: config,
		Cluster: members.ClusterOf, Admit: members.Admit, Join: joiner.Join})
	must(err)
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { serves.Run(ctx) })
	group.Go(func() { serves.Serve(listener) })
	t.Cleanup(func() {
		cancel()
		serves.Close()
		group.Wait()
	})
	return s
}

// join runs weir join, and returns what the host got.
func (s *joinable) join(t *testing.T, root string) (*disk.Member, cluster.Node) {
	t.Helper()
	token, err := members.Invite(t.Context(), s.model, s.ca, members.Invitation{Uses: 1,
		Valid: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var out, messages bytes.Buffer
	if status := run(t.Context(), []string{"--root", root, "join", "--name", "b",
		token.String() + "@" + s.address}, strings.NewReader(""), &out, &messages); status != 0 {
		t.Fatalf("status %d: %s", status, &messages)
	}
	m, err := disk.ReadMember(storeDir(root))
	if err != nil {
		t.Fatal(err)
	}
	n, err := cluster.Decode[cluster.Node](m.Node)
	if err != nil {
		t.Fatal(err)
	}
	return m, n
}

func storeDir(root string) string { return filepath.Join(root, "var/lib/weir/store") }

// TestRejoinHasANewKey: one who has stolen a host's key has nothing that counts any more when the
// host has joined again. This holds also if an answer to it was lost on the way.
func TestRejoinHasANewKey(t *testing.T) {
	s, root := newJoinable(t), t.TempDir()
	before, first := s.join(t, root)
	now, second := s.join(t, root)
	if second.TLS == first.TLS {
		t.Error("the key stays when a host joins again")
	}
	if second.WireGuard != first.WireGuard {
		t.Error("the tunnel gets another key")
	}
	// The answer was lost: the store has the second certificate, the host the first one.
	credential, err := identity.ParseCredential([]byte(now.Credential))
	if err != nil {
		t.Fatal(err)
	}
	joining := filepath.Join(storeDir(root), joiningFile)
	if err := os.WriteFile(joining, credential.Key.Seed(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := before.Write(storeDir(root)); err != nil {
		t.Fatal(err)
	}
	if _, third := s.join(t, root); third.TLS != second.TLS || len(third.Replaces) != 2 {
		t.Errorf("after a lost answer: key %v, ended %v", third.TLS, third.Replaces)
	}
	// The host has ended just before it removed the file.
	if err := os.WriteFile(joining, credential.Key.Seed(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, fourth := s.join(t, root); fourth.TLS == second.TLS {
		t.Error("the key stays after a join that was cut off at its end")
	}
}

// TestJoinWithAnExposedKey: where others could read the key of the host, weir join says how to
// close the file. After that the host joins again, with another key.
func TestJoinWithAnExposedKey(t *testing.T) {
	s, root := newJoinable(t), t.TempDir()
	_, before := s.join(t, root)
	file := filepath.Join(storeDir(root), disk.MemberFile)
	for path, mode := range map[string]os.FileMode{storeDir(root): 0o755, file: 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	token, err := members.Invite(t.Context(), s.model, s.ca, members.Invitation{Uses: 1,
		Valid: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var out, messages bytes.Buffer
	if status := run(t.Context(), []string{"--root", root, "join", token.String() + "@" +
		s.address}, strings.NewReader(""), &out, &messages); status != 1 ||
		!strings.Contains(messages.String(), file+" has mode 0644: others could read the key") ||
		strings.Contains(messages.String(), "remove") {
		t.Errorf("status %d: %s", status, &messages)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, now := s.join(t, root); now.TLS == before.TLS {
		t.Error("the key stays")
	}
}

// TestJoinUnreachable: where no weir-store answers, the error has a hint, and nothing is made.
func TestJoinUnreachable(t *testing.T) {
	s, root := newJoinable(t), t.TempDir()
	token, err := members.Invite(t.Context(), s.model, s.ca, members.Invitation{Uses: 1,
		Valid: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var out, messages bytes.Buffer
	if status := run(t.Context(), []string{"--root", root, "join", "--name", "b",
		token.String() + "@127.0.0.1:1"}, strings.NewReader(""), &out, &messages); status != 1 ||
		!strings.Contains(messages.String(), "hint: check the address, weir-store there") {
		t.Errorf("status %d: %s", status, &messages)
	}
	if _, err := disk.ReadMember(storeDir(root)); err == nil {
		t.Error("the host is a member")
	}
}

// TestJoinWaitsForAnother: of two joins of a host at once, the second one would write the
// certificate that the first one replaces, or the other way round. It waits, and says for what.
func TestJoinWaitsForAnother(t *testing.T) {
	s, root := newJoinable(t), t.TempDir()
	held, err := disk.Hold(t.Context(), storeDir(root))
	if err != nil {
		t.Fatal(err)
	}
	token, err := members.Invite(t.Context(), s.model, s.ca, members.Invitation{Uses: 1,
		Valid: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, messages bytes.Buffer
	if status := run(ctx, []string{"--root", root, "join", "--name", "b", token.String() + "@" +
		s.address}, strings.NewReader(""), &out, &messages); status != 1 ||
		!strings.Contains(messages.String(), "another weir join has not ended") {
		t.Errorf("status %d: %s", status, &messages)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	s.join(t, root)
}

// smallDisk mounts a file system of 64 KiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	nstest.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestJoinOnFullDisk: without space for what a host gets, it does not ask: its token stays valid.
func TestJoinOnFullDisk(t *testing.T) {
	s, root := newJoinable(t), smallDisk(t)
	// Two blocks are left: for the keys, and not for what the host gets.
	if err := os.WriteFile(filepath.Join(root, "fill"), make([]byte, 56<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	token, err := members.Invite(t.Context(), s.model, s.ca, members.Invitation{Uses: 1,
		Valid: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	var messages bytes.Buffer
	join := func() int {
		messages.Reset()
		return run(t.Context(), []string{"--root", root, "join", "--name", "b",
			token.String() + "@" + s.address}, strings.NewReader(""), new(bytes.Buffer), &messages)
	}
	if status := join(); status != 1 || !strings.Contains(messages.String(), "no space left") ||
		!strings.Contains(messages.String(), "the token stays valid") {
		t.Errorf("status %d: %s", status, &messages)
	}
	if err := unix.Mount("", root, "", unix.MS_REMOUNT, "size=8m"); err != nil {
		t.Fatal(err)
	}
	if status := join(); status != 0 {
		t.Errorf("with space: status %d: %s", status, &messages)
	}
}
