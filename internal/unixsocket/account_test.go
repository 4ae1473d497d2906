package unixsocket

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// socketVariable has the name of the socket to which a process of the test is to connect.
const socketVariable = "WEIR_TEST_SOCKET"

// TestMain runs the tests, or a client of TestAccount in a process of another user.
func TestMain(m *testing.M) {
	if path := os.Getenv(socketVariable); path != "" {
		os.Exit(connect(path))
	}
	os.Exit(m.Run())
}

// connect holds a connection until the other end closes it.
func connect(path string) int {
	c, err := net.Dial("unix", path)
	if err == nil {
		_, err = io.Copy(io.Discard, c)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestAccount: connections count to the user who made a user namespace, whichever subordinate user
// of it connects, and also from a namespace within. They count to the namespace if root made it,
// and without one to the user who connects. One whose process has gone counts to none.
func TestAccount(t *testing.T) {
	nstest.RequireRoot(t)
	dir, err := os.MkdirTemp("", "weir-account-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	self, err := os.Open("/proc/self/exe") // other users cannot open the directory that it is in
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err == nil {
		err = os.Chmod(path, 0o666)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	made, ofRoot := subordinates(t, 4242), subordinates(t, 0)
	enter := func(ns, uid string) []string {
		return []string{"nsenter", "-U", "-t", ns, "-S", uid, "-G", uid}
	}
	var ns unix.Stat_t
	if err := unix.Stat("/proc/"+ofRoot+"/ns/user", &ns); err != nil {
		t.Fatal(err)
	}
	one := ofNamespace + int(ns.Ino)
	for _, c := range []struct {
		as   []string
		want int
	}{
		{[]string{"env"}, 0},
		{[]string{"setpriv", "--reuid=4243", "--clear-groups"}, 4243},
		{enter(made, "5"), 4242},
		{enter(made, "6"), 4242},
		{append(enter(made, "5"), "unshare", "-U"), 4242},
		{enter(ofRoot, "5"), one},
		{enter(ofRoot, "6"), one},
		{append(enter(ofRoot, "5"), "unshare", "-U"), one},
	} {
		cmd := exec.Command(c.as[0], append(c.as[1:], "/proc/self/fd/3")...)
		cmd.Env, cmd.ExtraFiles = append(os.Environ(), socketVariable+"="+path), []*os.File{self}
		cmd.Dir, cmd.Stderr = "/", os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if got := Account(conn); got != c.want {
			t.Errorf("%q: it counts to %d, not to %d", c.as, got, c.want)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", c.as, err)
		}
		if got := Account(conn); got != -1 && c.want != 0 {
			t.Errorf("%q: it has gone and counts to %d", c.as, got)
		}
		conn.Close()
	}
}

// subordinates makes a user namespace of a user, with a thousand others, and returns the id of a
// process in it.
func subordinates(t *testing.T, uid int) string {
	t.Helper()
	cmd := exec.Command("setpriv", fmt.Sprint("--reuid=", uid), "--clear-groups", "unshare", "-U",
		"cat")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Wait() })
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		t.Fatal(err)
	}
	proc := fmt.Sprint("/proc/", cmd.Process.Pid)
	nstest.Eventually(t, "the namespace is there", func() bool {
		is, err := os.Readlink(proc + "/ns/user")
		return err == nil && is != ours
	})
	for _, of := range []string{"/uid_map", "/gid_map"} {
		if err := os.WriteFile(proc+of, []byte("0 100000 1000"), 0); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprint(cmd.Process.Pid)
}
