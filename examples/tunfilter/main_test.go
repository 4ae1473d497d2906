package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestMain makes the test binary the program itself if TUNFILTER_RUN is set.
func TestMain(m *testing.M) {
	if os.Getenv("TUNFILTER_RUN") == "1" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestTunFilter puts the program between two hosts. A connection that the rules allow works,
// another is reset, and no connection comes in.
func TestTunFilter(t *testing.T) {
	lab := nstest.New(t)
	a, b := lab.Node("inside"), lab.Node("outside")
	rules := filepath.Join(t.TempDir(), "rules")
	text := "add 1 check-state\nadd 10 allow tcp from any to any 80 out setup keep-state\n" +
		"add 20 reset tcp from any to any out\n" +
		"add 30 prob 0.5 allow udp from any to any 9 out\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := a.Command(os.Args[0], rules, "tin", "tout")
	cmd.Env = append(os.Environ(), "TUNFILTER_RUN=1")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) {
		t.Helper()
		var err error
		var out []byte
		defer func() {
			if err != nil {
				t.Logf("ip %v: %v\n%s", args, err, out)
			}
		}()
		nstest.Eventually(t, "the program has made its devices", func() bool {
			out, err = exec.Command("ip", args...).CombinedOutput()
			return err == nil
		})
	}
	run("-n", a.Name(), "link", "set", "tout", "netns", b.Name())
	run("-n", a.Name(), "address", "add", "10.77.0.1/24", "dev", "tin")
	run("-n", b.Name(), "address", "add", "10.77.0.2/24", "dev", "tout")
	run("-n", a.Name(), "link", "set", "tin", "up")
	run("-n", b.Name(), "link", "set", "tout", "up")

	serve := func(n *nstest.Node, address string) {
		l, err := n.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		server := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter,
			r *http.Request) {
			io.WriteString(w, "hello")
		})}
		go server.Serve(l)
		t.Cleanup(func() { server.Close() })
	}
	serve(b, "10.77.0.2:80")
	serve(b, "10.77.0.2:81")
	serve(a, "10.77.0.1:80")
	get := func(n *nstest.Node, url string, most time.Duration) (string, error) {
		client := http.Client{Timeout: most,
			Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
		resp, err := client.Get(url)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return string(body), err
	}
	const testTimeout = 5 * time.Minute
	if body, err := get(a, "http://10.77.0.2:80/", testTimeout); err != nil || body != "hello" {
		t.Errorf("port 80: %q, %v", body, err)
	}
	if body, err := get(a, "http://10.77.0.2:81/", testTimeout); !errors.Is(err,
		syscall.ECONNREFUSED) {
		t.Errorf("port 81 was not reset: %q, %v", body, err)
	}
	if body, err := get(b, "http://10.77.0.1:80/", 2*time.Second); err == nil {
		t.Errorf("a connection came in: %q", body)
	} else if e, ok := err.(net.Error); !ok || !e.Timeout() {
		t.Errorf("it was not dropped silently: %v", err)
	}
	halfOfThem(t, a, b)
}

// halfOfThem sends datagrams that a rule lets pass with a probability of one half.
func halfOfThem(t *testing.T, a, b *nstest.Node) {
	t.Helper()
	const sent = 200
	l, err := b.ListenPacket("udp", "10.77.0.2:9")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := a.DialContext(t.Context(), "udp", "10.77.0.2:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for range sent {
		if _, err := c.Write([]byte("datagram")); err != nil {
			t.Fatal(err)
		}
	}
	received, wait := 0, time.Minute // the program may not have run yet
	for buf := make([]byte, 100); ; received++ {
		l.SetReadDeadline(time.Now().Add(wait))
		if _, _, err := l.ReadFrom(buf); err != nil {
			break
		}
		wait = time.Second
	}
	// None or all would pass by luck once in 2^199 runs.
	if received == 0 || received == sent {
		t.Errorf("%d of %d datagrams passed prob 0.5", received, sent)
	}
}
