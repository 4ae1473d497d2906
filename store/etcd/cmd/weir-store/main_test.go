package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
)

// asStore makes the test binary run as weir-store.
const asStore = "WEIR_AS_STORE"

const testTimeout = 5 * time.Minute

// TestMain runs the tests, or weir-store in a process of its own that can be killed.
func TestMain(m *testing.M) {
	if os.Getenv(asStore) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// host is a host with a weir-store.
type host struct {
	name    string
	dir     string
	address string
	peer    string // port
	process *exec.Cmd
	log     bytes.Buffer
}

// lab is a few store hosts on loopback.
type lab struct {
	dir   string
	hosts []*host
}

// newLab makes a directory with a short name: that of a socket has 108 bytes.
func newLab(t *testing.T) *lab {
	t.Helper()
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &lab{dir: dir}
}

func (l *lab) newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{name: name, dir: filepath.Join(l.dir, name), address: freeAddress(t)}
	_, h.peer, _ = net.SplitHostPort(freeAddress(t))
	l.hosts = append(l.hosts, h)
	t.Cleanup(func() {
		h.kill(t)
		if t.Failed() {
			t.Logf("%s says:\n%s", name, h.log.String())
		}
	})
	return h
}

// ports counts the ports that freeAddress has tried.
var ports atomic.Uint32

// freeAddress returns an address that is free until the test binds it, seconds later. It is below
// the ports that the kernel gives out by itself (ip_local_port_range), and not one of another test.
// A socket in the abstract namespace, which has the extent of that of the ports, says that it is
// taken, also to other processes.
func freeAddress(t *testing.T) string {
	t.Helper()
	const first, count = 20000, 12000
	for range count {
		port := first + ports.Add(1)%count
		taken, err := net.Listen("unix", fmt.Sprintf("@weir-test-port-%d", port))
		if err != nil {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp", address)
		if err != nil {
			taken.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { taken.Close() })
		return address
	}
	t.Fatalf("no port from %d to %d is free", first, first+count-1)
	return ""
}

func (h *host) command(args ...string) *exec.Cmd {
	args = append([]string{args[0], "-dir", h.dir}, args[1:]...)
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asStore+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// run runs a command to its end and returns what it printed.
func (h *host) run(t *testing.T, args ...string) string {
	t.Helper()
	c := h.command(args...)
	var out, messages bytes.Buffer
	c.Stdout, c.Stderr = &out, &messages
	if err := c.Run(); err != nil {
		t.Fatalf("%s: weir-store %v: %v\n%s%s", h.name, args, err, out.Bytes(), messages.Bytes())
	}
	return strings.TrimSpace(out.String())
}

// fails runs a command that has to fail, and returns what it says.
func (h *host) fails(t *testing.T, args ...string) string {
	t.Helper()
	said, err := h.command(args...).CombinedOutput()
	if err == nil {
		t.Errorf("%s: weir-store %v does not fail: %s", h.name, args, said)
	}
	return string(said)
}

// serve starts weir-store and waits until it accepts connections.
func (h *host) serve(t *testing.T) {
	t.Helper()
	h.start(t)
	for late := time.Now().Add(testTimeout); ; time.Sleep(20 * time.Millisecond) {
		conn, err := net.Dial("tcp", h.address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s does not serve: %v", h.name, err)
		}
	}
}

func (h *host) start(t *testing.T) {
	t.Helper()
	h.process = h.command("serve")
	h.process.Stdout, h.process.Stderr = &h.log, &h.log
	if err := h.process.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill kills weir-store with SIGKILL, and waits for its end.
func (h *host) kill(t *testing.T) {
	t.Helper()
	if h.process == nil {
		return
	}
	if err := h.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	h.process.Wait()
	h.process = nil
}

// stop ends weir-store as the service manager does.
func (h *host) stop(t *testing.T) {
	t.Helper()
	if err := h.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := h.process.Wait(); err != nil {
		t.Errorf("%s ended with %v", h.name, err)
	}
	h.process = nil
}

// setHeartbeat makes elections short.
func (h *host) setHeartbeat(t *testing.T, d time.Duration) {
	t.Helper()
	c, err := home(h.dir).config()
	if err != nil {
		t.Fatal(err)
	}
	c.Heart = duration(d)
	if err := home(h.dir).writeConfig(c); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) adminFile() string { return filepath.Join(l.dir, "admin.pem") }

// database returns the store behind the host's weir-store, as an attacker in it reaches it.
func (h *host) database(t *testing.T) *etcd.Driver {
	t.Helper()
	cfg, err := home(h.dir).config()
	if err != nil {
		t.Fatal(err)
	}
	d, err := home(h.dir).driver(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func (l *lab) init(t *testing.T, args ...string) *host {
	t.Helper()
	h := l.newHost(t, "a")
	h.run(t, append([]string{"init", "-name", "a", "-address", h.address, "-pool",
		"10.64.0.0/12:24", "-admin-file", l.adminFile()}, args...)...)
	h.setHeartbeat(t, 50*time.Millisecond)
	return h
}

// member is a host that joined.
type member struct {
	*client.Client
	*client.Joined
}

// join joins with a token that the host a prints.
func (l *lab) join(t *testing.T, a *host, name string) *member {
	t.Helper()
	joined, err := l.tryJoin(t, a, name)
	if err != nil {
		t.Fatal(err)
	}
	return &member{l.connect(t, joined.Credential, name), joined}
}

func (l *lab) tryJoin(t *testing.T, a *host, name string) (*client.Joined, error) {
	t.Helper()
	printed := a.run(t, "invite", "-role", "web")
	text, address, _ := strings.Cut(printed, "@")
	token, err := identity.ParseToken(text)
	if err != nil {
		t.Fatalf("%q: %v", printed, err)
	}
	key, err := identity.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	return client.Join{Token: token, Address: address, Name: name, Key: key,
		WireGuardKey: [32]byte(key.Public().(ed25519.PublicKey)),
		Dial:         (&net.Dialer{}).DialContext}.Do(ctx)
}

// connect connects to all weir-stores.
func (l *lab) connect(t *testing.T, c *identity.Credential, name string) *client.Client {
	t.Helper()
	config, err := c.ClientTLS()
	if err != nil {
		t.Fatal(err)
	}
	// A third of the time of silence is what connecting may take, on a busy machine.
	connected, err := client.New(client.Config{Name: name, TLS: config, Silence: 15 * time.Second,
		Dial: (&net.Dialer{}).DialContext, Stores: func() (all []string) {
			for _, h := range l.hosts {
				all = append(all, h.address)
			}
			return all
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connected.Close() })
	return connected
}

func (l *lab) admin(t *testing.T) *client.Client {
	t.Helper()
	c, err := identity.ReadCredential(l.adminFile())
	if err != nil {
		t.Fatal(err)
	}
	return l.connect(t, c, "admin")
}

func put(key, value string) store.Txn {
	return store.Txn{Put: []store.Entry{{Key: key, Value: []byte(value)}}}
}

// commit commits, and tries again while the store does not answer.
func commit(t *testing.T, s store.Store, x store.Txn) int64 {
	t.Helper()
	for late := time.Now().Add(testTimeout); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		revision, err := s.Commit(ctx, x)
		cancel()
		if err == nil {
			return revision
		}
		if time.Now().After(late) {
			t.Fatal(err)
		}
	}
}
