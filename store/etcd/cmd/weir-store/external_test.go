package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/storetest"
)

// debianEtcd is Debian's etcd, behind a proxy that can hold every byte back.
type debianEtcd struct {
	program, dir, at, peer string
	process                *exec.Cmd
	proxy                  *storetest.Proxy
}

func newDebianEtcd(t *testing.T, l *lab) *debianEtcd {
	t.Helper()
	program, err := exec.LookPath("etcd")
	if err != nil {
		if os.Getenv("WEIR_CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	e := &debianEtcd{program: program, dir: filepath.Join(l.dir, "etcd"), at: freeAddress(t),
		peer: freeAddress(t)}
	e.start(t)
	t.Cleanup(func() { e.kill(t) })
	e.answers(t)
	e.proxy = storetest.NewProxy(t, "tcp", "127.0.0.1:0", e.at)
	return e
}

func (e *debianEtcd) start(t *testing.T) {
	t.Helper()
	client, peer := "http://"+e.at, "http://"+e.peer
	e.process = exec.Command(e.program, "--data-dir", e.dir, "--listen-client-urls", client,
		"--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--log-level", "error")
	e.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := e.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// answers waits until it does: commands of weir-store give up after seconds.
func (e *debianEtcd) answers(t *testing.T) {
	t.Helper()
	d, err := etcd.Open(etcd.Config{Client: clientv3.Config{
		Endpoints: []string{"http://" + e.at}}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	storetest.Eventually(t, "etcd answers", func() bool {
		_, err := d.Read(t.Context(), cluster.IdentityKey, 0)
		return err == nil
	})
}

func (e *debianEtcd) kill(t *testing.T) {
	t.Helper()
	if err := e.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	e.process.Wait()
}

// TestExternal: two weir-stores on Debian's etcd. etcd is killed, and cut off without an end of its
// connections; hosts keep what they have meanwhile, and get what is new afterwards.
func TestExternal(t *testing.T) {
	l := newLab(t)
	e := newDebianEtcd(t, l)
	at := (&url.URL{Scheme: "http", Host: e.proxy.Address}).String()
	a := l.init(t, "-etcd", at)
	a.serve(t)
	b := l.newHost(t, "b")
	file := filepath.Join(l.dir, "b.json")
	a.run(t, "grow", "b", b.address, file)
	b.run(t, "adopt", file)
	b.serve(t)
	x, y := l.join(t, a, "x"), l.join(t, a, "y")
	fx, fy := follow(t, x.Client), follow(t, y.Client)
	works := func(when, value string) {
		t.Helper()
		begin := time.Now()
		commit(t, x, put(cluster.PodsTree+"x/0000", value))
		for name, f := range map[string]*follower{"x": fx, "y": fy} {
			storetest.Eventually(t, name+" has the change "+when, func() bool {
				return f.has(cluster.PodsTree+"x/0000", value)
			})
		}
		t.Logf("%s: %v", when, time.Since(begin).Round(time.Millisecond))
	}
	works("at first", "1")
	e.kill(t)
	if !fy.has(cluster.PodsTree+"x/0000", "1") || fy.held() > 0 {
		t.Error("what a host has changed when etcd was killed")
	}
	e.start(t)
	works("after etcd was killed", "2")
	e.proxy.Cut(true)
	time.Sleep(500 * time.Millisecond)
	e.proxy.Cut(false)
	works("after it was cut off for a moment", "3")
	a.kill(t)
	works("without a weir-store", "4")
	b.kill(t)
	a.start(t)
	works("with the other one", "5")
}

// TestRestoreIntoExternal: a restore into an external etcd that was cut off, before its last
// transaction or before this host knows the epoch, is continued by the next one. One that is whole
// and known is not restored again.
func TestRestoreIntoExternal(t *testing.T) {
	l := newLab(t)
	e := newDebianEtcd(t, l)
	a := l.init(t, "-etcd", "http://"+e.at)
	file := filepath.Join(l.dir, "backup")
	a.run(t, "backup", file)
	if said := a.fails(t, "restore", file); !strings.Contains(said, "etcdctl del --prefix") {
		t.Errorf("into a cluster: %s", said)
	}
	h, d := home(a.dir), a.database(t)
	for _, gone := range []string{cluster.Root, cluster.IdentityKey, cluster.HeadKey} {
		if _, err := d.Client().Delete(t.Context(), gone, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(h.file(epochFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if said := a.run(t, "restore", file); said != "3 entries, epoch 2" {
			t.Errorf("without %s: %s", gone, said)
		}
	}
	if epoch, err := h.epoch(); err != nil || epoch != 2 {
		t.Errorf("this host knows epoch %d, %v", epoch, err)
	}
	if said := a.fails(t, "restore", file); !strings.Contains(said, "not empty") {
		t.Errorf("a second restore: %s", said)
	}
	a.serve(t)
	l.join(t, a, "x")
}
