package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// need skips the test when a program is missing; with WEIR_CI=1 it fails it.
func need(t *testing.T, programs ...string) {
	t.Helper()
	nstest.RequireRoot(t)
	for _, p := range programs {
		if _, err := exec.LookPath(p); err == nil {
			continue
		}
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatalf("NOT TESTED: %s is missing, and WEIR_CI=1 forbids to skip", p)
		}
		t.Skipf("NOT TESTED: %s is missing", p)
	}
}

// bigFile is what every nginx serves at /big.
var bigFile = sync.OnceValues(func() (string, error) {
	path := filepath.Join(filepath.Dir(weir), "big")
	return path, os.WriteFile(path, bytes.Repeat([]byte("0123456789abcdef"), 4<<20), 0o644)
})

// nginx runs a real nginx in a node; it serves a small page at / and 64 MiB at /big on each port.
func nginx(t *testing.T, node *nstest.Node, ports ...int) {
	t.Helper()
	nginxWith(t, node, "", ports...)
}

// nginxWith is nginx with more directives of the main context.
func nginxWith(t *testing.T, node *nstest.Node, directives string, ports ...int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("index.html", []byte("hello from nginx\n"))
	big, err := bigFile()
	if err != nil {
		t.Fatal(err)
	}
	var listen strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&listen, "listen [::]:%d ipv6only=off;\n", p)
	}
	write("nginx.conf", fmt.Appendf(nil, `
user root;
daemon off;
worker_processes 1;
pid %[1]s/pid;
error_log stderr warn;
%[4]s
events { worker_connections 1000; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
	server {
		%[2]s root %[1]s; location = /big { alias %[3]s; }
		location = /slow { alias %[3]s; limit_rate 8m; }
		location = /status { stub_status; }
	}
}`, dir, listen.String(), big, directives))
	cmd := node.Command("nginx", "-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	background(t, cmd)
	eventually(t, "nginx listens", func() error {
		c, err := node.DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
		if err == nil {
			c.Close()
		}
		return err
	})
}

// background starts a program that ends with the test.
func background(t *testing.T, cmd *nstest.Cmd) (done chan error) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done = make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		done <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			cmd.Process.Kill()
			<-ended
		}
	})
	return done
}

// testTimeout is how long tests wait for what has to come: others may keep the machine busy.
const testTimeout = 5 * time.Minute

// eventually tries until it works, less often the longer that takes: a try often runs a program,
// and other tests need the processors.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	var err error
	pause := 10 * time.Millisecond
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); time.Sleep(pause) {
		if err = try(); err == nil {
			return
		}
		pause = min(2*pause, 200*time.Millisecond)
	}
	t.Fatalf("%s: %v", what, err)
}

// waitFor tries until it works, for some time, with a pause after each failure.
func waitFor(t *testing.T, most, pause time.Duration, what string, try func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(most); time.Now().Before(deadline); time.Sleep(pause) {
		if err = try(); err == nil {
			return
		}
	}
	t.Fatalf("%s: %v", what, err)
}

// programOutput is what a program prints, to be read while it runs.
type programOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *programOutput) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *programOutput) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// await waits until something was printed.
func (w *programOutput) await(t *testing.T, what string) {
	t.Helper()
	eventually(t, "it says "+what, func() error {
		if output := w.String(); !strings.Contains(output, what) {
			return fmt.Errorf("it printed %q", output)
		}
		return nil
	})
}

// ping sends one and waits for its answer.
func ping(from *nstest.Node, args ...string) error {
	if out, err := from.Command("ping",
		append([]string{"-c1", "-W300"}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ping: %w\n%s", err, out)
	}
	return nil
}

// curl asks for a URL from a node and returns what came. It waits at most a second and a half for a
// connection, which is enough to know that there will be none.
func curl(node *nstest.Node, args ...string) (string, error) {
	cmd := node.Command("curl", append([]string{"-sS", "--noproxy", "*", "--connect-timeout",
		"1.5"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("curl %s: %w: %s", strings.Join(args, " "), err,
			strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}

// get is curl for what has to answer: it waits for a connection as long as it takes.
func get(node *nstest.Node, args ...string) (string, error) {
	return curl(node, append([]string{"--connect-timeout", fmt.Sprint(testTimeout.Seconds())},
		args...)...)
}

// reach makes sure that a URL answers, refuse that nothing answers.
func reach(t *testing.T, node *nstest.Node, url string) {
	t.Helper()
	out, err := get(node, url)
	if err != nil || out != "hello from nginx\n" {
		t.Errorf("from %s: %q, %v", node, out, err)
	}
}

// awaitServer waits until a web server listens, whose container or process has just begun.
func awaitServer(t *testing.T, node *nstest.Node, url string) {
	t.Helper()
	eventually(t, "the web server answers", func() error {
		_, err := curl(node, url)
		return err
	})
}

func refuse(t *testing.T, node *nstest.Node, url string) {
	t.Helper()
	if out, err := curl(node, url); err == nil {
		t.Errorf("from %s: %s answers %q although the rules refuse it", node, url, out)
	}
}
