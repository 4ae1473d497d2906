package test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startProxy runs `weir proxy` and returns where it listens, and a function that
// stops it and returns what it printed.
func startProxy(t *testing.T, args ...string) (address string, stop func() string) {
	t.Helper()
	cmd := exec.Command(weir, append([]string{"proxy", "--listen", "127.0.0.1:0"}, args...)...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := bufio.NewReader(stderr)
	ready, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%q %v", ready, err)
	}
	m := regexp.MustCompile(`^weir: proxy for SOCKS5 and HTTP at (127\.0\.0\.1:\d+)\n$`).FindStringSubmatch(ready)
	if m == nil {
		t.Fatalf("ready line %q", ready)
	}
	return m[1], func() string {
		cmd.Process.Signal(syscall.SIGTERM)
		rest, _ := io.ReadAll(lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("weir proxy ended with %v", err)
		}
		return string(rest)
	}
}

func TestProxyCommand(t *testing.T) {
	t.Parallel()
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello")
	}))
	defer origin.Close()
	users := filepath.Join(t.TempDir(), "users")
	hash := exec.Command(weir, "proxy", "--hash", "ann")
	hash.Stdin = strings.NewReader("secret\n")
	line, err := hash.Output()
	if err != nil || !strings.HasPrefix(string(line), "ann:$2") {
		t.Fatalf("weir proxy --hash: %v %q", err, line)
	}
	if err := os.WriteFile(users, append([]byte("# who may\n"), line...), 0o600); err != nil {
		t.Fatal(err)
	}
	address, stop := startProxy(t, "--users", users)
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	for _, scheme := range []string{"http", "socks5"} {
		for pass, ok := range map[string]bool{"secret": true, "wrong": false} {
			via := &url.URL{Scheme: scheme, Host: address, User: url.UserPassword("ann", pass)}
			client := &http.Client{Timeout: 5 * time.Minute,
				Transport: &http.Transport{Proxy: http.ProxyURL(via)}}
			resp, err := client.Get("http://localhost:" + port + "/")
			got := ""
			if err == nil {
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				got = string(b)
			}
			if (got == "hello") != ok {
				t.Errorf("%s with %s: %q %v", scheme, pass, got, err)
			}
			client.CloseIdleConnections()
		}
	}
	if output := stop(); !strings.Contains(output, "proxy stopped: 4 clients") ||
		!strings.Contains(output, "2 denied") {
		t.Errorf("it printed %q", output)
	}
	// A file that others can read must not hold passwords.
	os.Chmod(users, 0o644)
	out, err := exec.Command(weir, "proxy", "--users", users).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "others can read") ||
		!strings.Contains(string(out), "hint: chmod 600") {
		t.Errorf("%q %v", out, err)
	}
	// A credential of systemd has such a mode, in a directory that is the service's alone.
	credential := exec.Command(weir, "proxy", "--users", users, "--listen", "192.0.2.1:0")
	credential.Env = append(os.Environ(), "CREDENTIALS_DIRECTORY="+filepath.Dir(users))
	out, err = credential.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot assign requested address") {
		t.Errorf("a credential: %q %v", out, err)
	}
	// A password in the clear is refused, with the way to a hash.
	if err := errors.Join(os.WriteFile(users, []byte("ann:secret\n"), 0o600),
		os.Chmod(users, 0o600)); err != nil {
		t.Fatal(err)
	}
	out, err = exec.Command(weir, "proxy", "--users", users).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "users:1: ") ||
		!strings.Contains(string(out), "hint: create the line with: weir proxy --hash ann") {
		t.Errorf("%q %v", out, err)
	}
}

func TestDialCommand(t *testing.T) {
	t.Parallel()
	origin := httptest.NewTLSServer(nil)
	defer origin.Close()
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	out, err := exec.Command(weir, "dial", "localhost:"+port).CombinedOutput()
	if err != nil {
		t.Fatalf("%v %s", err, out)
	}
	for _, want := range []string{`ask     AAAA, A of localhost`,
		`answer  A: 127.0.0.1 \(from hosts\)`, `try     #\d 127.0.0.1:` + port,
		`won     #\d 127.0.0.1:`, `: connected to 127.0.0.1:\d+ after [0-9.]+ ms`} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	var answer struct {
		Version int
		Won     bool
		Winner  string
		Error   string
		Events  []struct{ Kind, Address, Error string }
	}
	out, err = exec.Command(weir, "dial", "localhost:"+port, "-j").Output()
	if err != nil || json.Unmarshal(out, &answer) != nil || answer.Version != 1 || !answer.Won ||
		answer.Winner != "127.0.0.1:"+port || len(answer.Events) < 4 {
		t.Errorf("%v %s", err, out)
	}
	// No authority signed the server's certificate: the handshake fails, and the error says so.
	out, err = exec.Command(weir, "dial", "-j", "--timeout", testTimeout.String(),
		fmt.Sprintf("https://localhost:%s/", port)).Output()
	if code := exitCode(err); code != 1 || json.Unmarshal(out, &answer) != nil || answer.Won ||
		!strings.Contains(answer.Error, "certificate") {
		t.Errorf("%v %s", err, out)
	}
}

func exitCode(err error) int {
	if exit, ok := err.(*exec.ExitError); ok {
		return exit.ExitCode()
	}
	return -1
}
