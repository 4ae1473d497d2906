package nstest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// exists reports whether a file is there.
func exists(t *testing.T, path string) bool {
	t.Helper()
	_, err := os.Lstat(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return err == nil
}

// TestBothFamiliesAtOnce: a server and a client, no pause between making the network and using it.
func TestBothFamiliesAtOnce(t *testing.T) {
	lab := New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "10.9.0.1/24 fd00:9::1/64", client, "eth0", "10.9.0.2/24 fd00:9::2/64")
	for _, addr := range []string{"10.9.0.1:80", "[fd00:9::1]:80"} {
		l, err := server.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "hello "+r.RemoteAddr)
		})}
		go srv.Serve(l)
		defer srv.Close()
		c := http.Client{Transport: &http.Transport{DialContext: client.DialContext},
			Timeout: testTimeout}
		defer c.CloseIdleConnections()
		resp, err := c.Get("http://" + addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.HasPrefix(string(body), "hello 10.9.0.2:") &&
			!strings.HasPrefix(string(body), "hello [fd00:9::2]:") {
			t.Errorf("%s: got %q", addr, body)
		}
	}
}

func TestARouterInTheMiddle(t *testing.T) {
	lab := New(t)
	a, r, b := lab.Node("a"), lab.Node("router"), lab.Node("b")
	lab.Join(a, "eth0", "10.1.0.2/24 fd01::2/64", r, "left", "10.1.0.1/24 fd01::1/64")
	lab.Join(b, "eth0", "10.2.0.2/24 fd02::2/64", r, "right", "10.2.0.1/24 fd02::1/64")
	r.Sysctl("net.ipv4.ip_forward", "1")
	r.Sysctl("net.ipv6.conf.all.forwarding", "1")
	a.Route("0.0.0.0/0", "10.1.0.1")
	a.Route("::/0", "fd01::1")
	b.Route("10.1.0.0/24", "10.2.0.1")
	b.Route("fd01::/64", "fd02::1")
	for _, to := range []string{"10.2.0.2", "fd02::2"} {
		if out, err := a.Command("ping", "-n", "-c1", "-W60", to).CombinedOutput(); err != nil {
			t.Errorf("ping %s: %v\n%s", to, err, out)
		}
	}
}

func TestCloseTakesProcessesNamespacesAndLinksAway(t *testing.T) {
	lab := New(t)
	n := lab.Node("n")
	sleeper := n.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	inside, err := n.Command("readlink", "/proc/self/ns/net").Output()
	if err != nil {
		t.Fatal(err)
	}
	outside, _ := os.Readlink("/proc/thread-self/ns/net")
	if strings.TrimSpace(string(inside)) == outside {
		t.Error("the command ran outside the node")
	}
	if !exists(t, n.Path()) {
		t.Fatalf("no %s", n.Path())
	}
	if err := lab.Close(); err != nil {
		t.Fatal(err)
	}
	if exists(t, n.Path()) {
		t.Errorf("%s is still there", n.Path())
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("sleep ended by itself")
		}
	case <-time.After(5 * time.Minute):
		t.Error("sleep outlived its namespace")
	}
	if err := lab.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

// TestMain lets a test start this binary again as a process that makes a lab and is then killed.
func TestMain(m *testing.M) {
	if os.Getenv("NSTEST_LEAVE_BEHIND") == "1" {
		leaveBehind()
	}
	if os.Getenv("NSTEST_CHECK_SKIPS") == "1" {
		checkSkipsAndExit()
	}
	os.Exit(m.Run())
}

func leaveBehind() {
	lab, err := Open()
	if err != nil {
		panic(err)
	}
	n, err := lab.AddNode("left")
	if err != nil {
		panic(err)
	}
	sleeper := n.Command("sleep", "1000")
	if err := sleeper.Start(); err != nil {
		panic(err)
	}
	dir, _, err := MountBpffs()
	if err != nil {
		panic(err)
	}
	os.Stdout.WriteString(n.Path() + " " + strconv.Itoa(sleeper.Process.Pid) + " " + dir + "\n")
	time.Sleep(time.Hour)
}

func TestTheNextLabSweepsWhatAKilledProcessLeft(t *testing.T) {
	RequireRoot(t)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), "NSTEST_LEAVE_BEHIND=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	k, _ := out.Read(buf)
	left := strings.Fields(string(buf[:k]))
	if len(left) != 3 {
		t.Fatalf("got %q", buf[:k])
	}
	path, pid, dir := left[0], left[1], left[2]

	New(t) // this process is alive: nothing of it may be removed
	if !exists(t, path) || !exists(t, dir) {
		t.Fatal("swept a living process's lab")
	}
	cmd.Process.Kill()
	cmd.Wait()
	New(t)
	if exists(t, path) {
		t.Errorf("%s is still there", path)
	}
	if exists(t, dir) {
		t.Errorf("%s is still there", dir)
	}
	if stat, err := os.ReadFile("/proc/" + pid + "/stat"); err == nil &&
		!strings.Contains(string(stat), ") Z ") {
		t.Errorf("process %s still runs: %s", pid, stat)
	}
}

// TestSweepOfAHalfSweptDirectory: another process has unmounted the file system and not removed its
// directory, now or for good.
func TestSweepOfAHalfSweptDirectory(t *testing.T) {
	RequireRoot(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("weir-%d-1-1-bpffs", gone.Process.Pid))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(dir) })
	New(t)
	if exists(t, dir) {
		t.Errorf("%s is still there", dir)
	}
}

// TestARuntimeThatSharesTheDirectory: the first ip-netns(8) or container runtime on a machine
// mounts the directory of names over itself; a lab that was there before goes away all the same.
func TestARuntimeThatSharesTheDirectory(t *testing.T) {
	RequireRoot(t)
	const inner = "NSTEST_FRESH_RUN"
	if os.Getenv(inner) == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("unshare", "--mount", "sh", "-c",
			`mount -t tmpfs none /run && exec "$0" -test.run='^TestARuntimeThatSharesTheDirectory$' -test.v`, self)
		cmd.Env = append(os.Environ(), inner+"=1")
		if out, err := cmd.CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "--- PASS") {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	lab, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	n, err := lab.AddNode("early")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "netns", "add", "late").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := lab.Close(); err != nil {
		t.Error(err)
	}
	if exists(t, n.Path()) {
		t.Errorf("%s is still there", n.Path())
	}
}

func TestBpffsIsPrivateAndGoesAway(t *testing.T) {
	RequireRoot(t)
	var dir string
	t.Run("inner", func(t *testing.T) {
		dir = Bpffs(t)
		if err := os.Mkdir(dir+"/weir", 0o700); err != nil {
			t.Errorf("cannot make a directory in it: %v", err)
		}
		if err := os.WriteFile(dir+"/file", nil, 0o600); err == nil {
			t.Error("took an ordinary file: not a bpf file system")
		}
	})
	if exists(t, dir) {
		t.Errorf("%s is still there", dir)
	}
}

func TestLoopbackIsUp(t *testing.T) {
	n := New(t).Node("n")
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := n.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		c, err := n.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			t.Errorf("dial %s: %v", l.Addr(), err)
			continue
		}
		c.Close()
	}
}

func TestAddLinkReportsWhatIsWrong(t *testing.T) {
	lab := New(t)
	a, b := lab.Node("a"), lab.Node("b")
	p := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}
	if err := lab.AddLink(End{a, "eth0", p}, End{b, "eth0", nil}); err != nil {
		t.Fatal(err)
	}
	err := lab.AddLink(End{a, "eth0", p}, End{b, "eth1", nil})
	if err == nil || !strings.Contains(err.Error(), "join a and b") {
		t.Errorf("a second eth0: got %v", err)
	}
}
