package etcd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

const (
	// childEnv names the directory of the member that the test binary is to run.
	childEnv = "WEIR_ETCD_MEMBER"
	// silence is what the suite waits for, and longer than a busy machine makes the member silent.
	silence     = 5 * time.Second
	testTimeout = 5 * time.Minute
)

// TestMain runs the tests, or a member in a process of its own that can be killed.
func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		os.Exit(member(dir))
	}
	os.Exit(m.Run())
}

// member runs an etcd until standard input ends.
func member(dir string) int {
	m, err := Start(context.Background(), MemberConfig{Dir: dir,
		Heartbeat: 20 * time.Millisecond})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer m.Close()
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// etcdCluster is one member in a process, with a proxy before it.
type etcdCluster struct {
	dir     string
	proxy   *storetest.Proxy
	process *exec.Cmd
	root    clientv3.Config // with a name and a password once the first user was made
	opened  []*Driver
	users   int
}

// newCluster starts a member. The directory's name is short: a socket's has 108 bytes.
func newCluster(t *testing.T) storetest.Cluster {
	dir, err := os.MkdirTemp("", "weir")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &etcdCluster{dir: dir}
	c.proxy = storetest.NewProxy(t, "unix", filepath.Join(dir, "proxy"),
		filepath.Join(dir, "client"))
	c.root = clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "proxy")}}
	c.start(t)
	t.Cleanup(func() { c.kill(t) })
	return c
}

func (c *etcdCluster) start(t *testing.T) {
	t.Helper()
	c.process = exec.Command(os.Args[0])
	c.process.Env = append(os.Environ(), childEnv+"="+c.dir)
	c.process.Stderr = os.Stderr
	c.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if _, err := c.process.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.process.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the member does not start: %q, %v", line, err)
	}
}

func (c *etcdCluster) kill(t *testing.T) {
	if err := c.process.Process.Kill(); err != nil {
		t.Error(err)
	}
	c.process.Wait()
}

// Open implements storetest.Cluster. The first call with grants switches etcd's own checks on.
func (c *etcdCluster) Open(t *testing.T, grants []store.Grant) store.Store {
	t.Helper()
	config := c.root
	if grants != nil {
		c.users++
		config.Username, config.Password = fmt.Sprintf("user%d", c.users), "secret"
		c.permit(t, config.Username, grants)
	}
	return c.open(t, config)
}

func (c *etcdCluster) open(t *testing.T, config clientv3.Config) *Driver {
	t.Helper()
	d, err := Open(Config{Client: config, Silence: silence})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	c.opened = append(c.opened, d)
	return d
}

func (c *etcdCluster) permit(t *testing.T, user string, grants []store.Grant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	admin := c.opened[0].client
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(nil, SetRole(ctx, admin, user, grants))
	must(admin.UserAdd(ctx, user, "secret"))
	must(admin.UserGrantRole(ctx, user, user))
	if c.root.Username != "" {
		return
	}
	must(admin.UserAdd(ctx, "root", "secret"))
	must(admin.UserGrantRole(ctx, "root", "root"))
	must(admin.AuthEnable(ctx))
	// What was opened without a name has no rights any more: it becomes root's.
	c.root.Username, c.root.Password = "root", "secret"
	for _, d := range c.opened {
		d.client = c.open(t, c.root).client
	}
}

// Compact implements storetest.Cluster.
func (c *etcdCluster) Compact(t *testing.T, revision int64) {
	t.Helper()
	storetest.Eventually(t, "the store compacts", func() bool {
		_, err := c.opened[0].client.Compact(t.Context(), revision,
			clientv3.WithCompactPhysical())
		return err == nil || errors.Is(err, rpctypes.ErrCompacted) // by a try without an answer
	})
}

// Restart implements storetest.Cluster: SIGKILL, and a new process with the same directory.
func (c *etcdCluster) Restart(t *testing.T) {
	t.Helper()
	c.kill(t)
	c.start(t)
	c.serves(t)
}

// serves waits until everything that was opened is connected.
func (c *etcdCluster) serves(t *testing.T) {
	t.Helper()
	for _, d := range c.opened {
		for late := time.Now().Add(testTimeout); ; {
			_, err := d.Read(t.Context(), "x", 0)
			if err == nil {
				break
			}
			if time.Now().After(late) {
				t.Fatal(err)
			}
		}
	}
}

// Silence implements storetest.Cluster.
func (c *etcdCluster) Silence() time.Duration { return silence }

// Partition implements storetest.Cluster.
func (c *etcdCluster) Partition(t *testing.T, cut bool) {
	c.proxy.Cut(cut)
	if !cut {
		c.serves(t)
	}
}

// Empty implements storetest.Cluster.
func (c *etcdCluster) Empty(t *testing.T) {
	t.Helper()
	c.kill(t)
	if err := os.RemoveAll(filepath.Join(c.dir, "data")); err != nil {
		t.Fatal(err)
	}
	c.start(t)
	c.serves(t)
}

func TestConformance(t *testing.T) {
	storetest.Run(t, newCluster)
}
