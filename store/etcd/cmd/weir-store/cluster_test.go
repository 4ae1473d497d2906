package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/storetest"
)

// follower follows in the background.
type follower struct {
	mu   sync.Mutex
	copy *store.Guarded
}

func follow(t *testing.T, c *client.Client) *follower {
	f := &follower{copy: store.NewGuarded(cluster.Guard(), store.Snapshot{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.Follow(ctx, client.Follow{
			Copy: func() *store.Copy { return f.copy.Stored() },
			Step: func(b store.Batch) error {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.copy.Step(b)
				return nil
			},
			Failed: func(error) {},
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return f
}

func (f *follower) has(key, value string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.copy.Stored().Get(key)
	return ok && string(e.Value) == value
}

func (f *follower) held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.copy.Held())
}

// open makes a cluster of one member that others can join.
func (l *lab) open(t *testing.T) *host {
	t.Helper()
	a := l.init(t)
	a.serve(t)
	if said := a.run(t, "grow", "-peer", "127.0.0.1:"+a.peer, "b", "127.0.0.1",
		filepath.Join(l.dir, "unused")); !strings.Contains(said, "restart") {
		t.Fatal(said)
	}
	a.stop(t)
	a.serve(t)
	return a
}

// three makes a cluster of three members.
func (l *lab) three(t *testing.T) {
	t.Helper()
	l.open(t)
	for _, name := range []string{"b", "c"} {
		h := l.newHost(t, name)
		file := filepath.Join(l.dir, name+".json")
		l.grow(t, h, file, "-peer-port", h.peer, name, h.address, file)
	}
}

// grow runs grow on the host a, and makes h the new member with the file that grow writes.
func (l *lab) grow(t *testing.T, h *host, file string, args ...string) {
	t.Helper()
	growing := l.hosts[0].command(append([]string{"grow"}, args...)...)
	var said bytes.Buffer
	growing.Stdout, growing.Stderr = &said, &said
	if err := growing.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- growing.Wait() }()
	storetest.Eventually(t, "grow writes its file", func() bool {
		select {
		case err := <-ended:
			t.Fatalf("grow %v: %v: %s", args, err, said.Bytes())
		default:
		}
		_, err := os.Stat(file)
		return err == nil
	})
	h.run(t, "adopt", file)
	h.serve(t)
	if err := <-ended; err != nil {
		t.Fatalf("grow %v: %v: %s", args, err, said.Bytes())
	}
}

// leader waits until a member leads, and returns its host: an election may be under way.
func (l *lab) leader(t *testing.T) (h *host) {
	t.Helper()
	storetest.Eventually(t, "there is a leader", func() bool {
		h = l.leads(t)
		return h != nil
	})
	return h
}

// leads returns the host whose member says that it leads, or nil.
func (l *lab) leads(t *testing.T) *host {
	t.Helper()
	for _, h := range l.hosts {
		if h.process == nil {
			continue
		}
		d, err := etcd.Open(etcd.Config{Client: clientv3.Config{
			Endpoints: []string{etcd.EndpointIn(home(h.dir).file(etcdDir))}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), connectTimeout)
		status, err := d.Client().Status(ctx, etcd.EndpointIn(home(h.dir).file(etcdDir)))
		cancel()
		d.Close()
		if err == nil && status.Leader == status.Header.MemberId {
			return h
		}
	}
	return nil
}

// TestThreeMembers: a member, the leader, and all are killed. Hosts follow through those that are
// left, nothing that was committed is lost, and what a host writes arrives at the others.
func TestThreeMembers(t *testing.T) {
	l := newLab(t)
	l.three(t)
	x, y := l.join(t, l.hosts[0], "x"), l.join(t, l.hosts[0], "y")
	if len(x.Stores) != 3 {
		t.Errorf("weir-stores: %v", x.Stores)
	}
	fx, fy := follow(t, x.Client), follow(t, y.Client)
	n := 0
	written := map[string]string{}
	works := func(when string) {
		t.Helper()
		n++
		begin := time.Now()
		key := fmt.Sprintf("%sx/%04d", cluster.PodsTree, n%7)
		written[key] = fmt.Sprint(n)
		commit(t, x, put(key, written[key]))
		for name, f := range map[string]*follower{"x": fx, "y": fy} {
			storetest.Eventually(t, name+" has the change "+when, func() bool {
				return f.has(key, written[key])
			})
		}
		t.Logf("%s: %v", when, time.Since(begin).Round(time.Millisecond))
	}
	works("with three")
	leader := l.leader(t)
	for _, h := range l.hosts {
		if h != leader {
			h.kill(t)
			works("without a member")
			h.serve(t)
			break
		}
	}
	works("with three again")
	leader.kill(t)
	works("without the leader")
	leader.serve(t)
	for _, h := range l.hosts {
		h.kill(t)
	}
	for _, h := range l.hosts {
		h.start(t)
	}
	works("after all were killed")
	for key, value := range written {
		if !fy.has(key, value) {
			t.Errorf("%s=%s is lost", key, value)
		}
	}
	if fx.held() > 0 {
		t.Errorf("%d removals are held", fx.held())
	}
}

// TestOneMember: what the commands do on the first host.
func TestOneMember(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	if said := a.fails(t, "invite"); !strings.Contains(said, "serve run") {
		t.Errorf("without a store: %s", said)
	}
	a.serve(t)
	x := l.join(t, a, "x")
	y := l.join(t, a, "y")
	f := follow(t, y.Client)
	commit(t, x, put(cluster.PodsTree+"x/0000", "1"))
	storetest.Eventually(t, "y has the pods of x", func() bool {
		return f.has(cluster.PodsTree+"x/0000", "1")
	})
	commit(t, y, put(cluster.PodsTree+"y/0000", "1"))
	other := filepath.Join(l.dir, "other.pem")
	a.run(t, "issue", "admin:other", other)
	file := filepath.Join(l.dir, "backup")
	a.run(t, "backup", file)
	a.run(t, "revoke", "admin:other")
	commit(t, y, put(cluster.PodsTree+"y/0000", "2"))
	storetest.Eventually(t, "y has them", func() bool {
		return f.has(cluster.PodsTree+"y/0000", "2")
	})
	late := l.join(t, a, "late")
	commit(t, late, put(cluster.PodsTree+"late/0000", "1"))
	storetest.Eventually(t, "y has those of late", func() bool {
		return f.has(cluster.PodsTree+"late/0000", "1")
	})

	// A removed host is out, whatever it does.
	a.run(t, "remove", "x")
	if _, err := x.Commit(t.Context(), put(cluster.PodsTree+"x/0000", "3")); err == nil {
		t.Error("a removed host writes")
	}
	if said := a.fails(t, "remove", "x"); !strings.Contains(said, "no host x") {
		t.Errorf("removed twice: %s", said)
	}

	// An old backup comes back in a new epoch.
	if said := a.fails(t, "restore", file); !strings.Contains(said, "stop it first") {
		t.Errorf("restored below a weir-store that runs: %s", said)
	}
	a.stop(t)
	if said := a.run(t, "restore", file); !strings.Contains(said, "epoch 2") {
		t.Error(said)
	}
	a.serve(t)
	storetest.Eventually(t, "y has the pods of the backup", func() bool {
		return f.has(cluster.PodsTree+"y/0000", "1")
	})
	// What was removed, or revoked, after the backup stays out.
	if _, err := x.Read(t.Context(), cluster.HeadKey, 0); err == nil {
		t.Error("a host that was removed reads after a backup of before was restored")
	}
	revoked, err := identity.ReadCredential(other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.connect(t, revoked, "other").Read(t.Context(), cluster.HeadKey,
		0); !errors.Is(err, store.ErrPermission) {
		t.Errorf("an administrator that was revoked: %v", err)
	}
	f.mu.Lock()
	_, enforced := store.NewCopy(f.copy.Enforced()).Get(cluster.PodsTree + "late/0000")
	f.mu.Unlock()
	if !enforced {
		t.Error("what the backup does not have was removed at once")
	}
	a.stop(t)
	if said := a.run(t, "restore", file); !strings.Contains(said, "epoch 3") {
		t.Errorf("the same backup again: %s", said)
	}
}

// TestIssued: credentials of administrators and feeds are put in force and revoked.
func TestIssued(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	a.serve(t)
	if _, err := l.admin(t).Commit(t.Context(), put(cluster.TableTree+"bad/00", "1")); err != nil {
		t.Fatalf("the first administrator: %v", err)
	}
	file := filepath.Join(l.dir, "feed.pem")
	a.run(t, "issue", "feed:bad", file)
	a.fails(t, "issue", "feed:bad", file)
	a.fails(t, "issue", "host:x", filepath.Join(l.dir, "host.pem"))
	c, err := identity.ReadCredential(file)
	if err != nil {
		t.Fatal(err)
	}
	feed := l.connect(t, c, "feed")
	if _, err := feed.Commit(t.Context(), put(cluster.TableTree+"bad/00", "2")); err != nil {
		t.Errorf("the feed: %v", err)
	}
	if _, err := feed.Commit(t.Context(), put(cluster.TableTree+"other/00", "2")); !errors.Is(err,
		store.ErrPermission) {
		t.Errorf("another table: %v", err)
	}
	a.run(t, "revoke", "feed:bad")
	if _, err := feed.Commit(t.Context(), put(cluster.TableTree+"bad/00", "3")); err == nil {
		t.Error("a feed that was revoked writes")
	}
	a.fails(t, "revoke", "feed:bad")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestInitWhileItRuns: init and restore leave a store alone whose weir-store runs, also if that has
// lost the majority and answers nothing.
func TestInitWhileItRuns(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	again := []string{"init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile()}
	cfg, err := home(a.dir).config()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(home(a.dir).file(configFile))
	if err != nil {
		t.Fatal(err)
	}
	running, err := net.Listen("unix", filepath.Join(home(a.dir).file(etcdDir), "client"))
	if err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, again...); !strings.Contains(said, "serves here") {
		t.Errorf("init: %s", said)
	}
	if held, err := home(a.dir).forRestore(t.Context()); err == nil {
		held.Close()
		t.Error("restore takes the place of the store that runs")
	}
	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(home(a.dir).file(configFile)); !bytes.Equal(after, before) {
		t.Errorf("the configuration was %s, is %s, %v", before, after, err)
	}
	cfg.Peers = &peers{Listen: "https://127.0.0.1:1", Advertise: "https://127.0.0.1:1"}
	if err := home(a.dir).writeConfig(cfg); err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, again...); !strings.Contains(said, "other members") {
		t.Errorf("init of one of several: %s", said)
	}
}

// TestInitAgain: init that was interrupted is run again; another cluster's files are refused.
func TestInitAgain(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	again := []string{"init", "-name", "a", "-address", a.address, "-admin-file", l.adminFile(),
		"-pool", "10.64.0.0/12:24"}
	first := a.run(t, again...)
	if err := os.Remove(filepath.Join(a.dir, configFile)); err != nil {
		t.Fatal(err)
	}
	second := a.run(t, again...)
	if first != second {
		t.Errorf("%s became %s", first, second)
	}
	b := l.newHost(t, "b")
	if said := b.fails(t, "init", "-name", "b", "-admin-file",
		l.adminFile()); !strings.Contains(said, "move it away") {
		t.Errorf("another cluster with the administrator's file: %s", said)
	}
	if err := os.Chmod(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if said := a.fails(t, "serve"); !strings.Contains(said, "0700") {
		t.Errorf("a directory that others read: %s", said)
	}
}
