package test

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pageEvents follows the events of `weir page` until there is one, which a datagram of the client
// causes, and returns it.
func pageEvents(t *testing.T, p *pair, address, auth string) string {
	t.Helper()
	// The header comes when the node has begun to listen.
	stream := p.server.Command("curl", "-sSN", "-D", "/dev/stderr", address+
		"/v1/events?filter=deny+udp", "-H", auth)
	var events, header programOutput
	stream.Stdout, stream.Stderr = &events, &header
	if err := stream.Start(); err != nil {
		t.Fatal(err)
	}
	header.await(t, "x-ndjson")
	datagram(t, p.client, "10.66.0.1:5353")
	events.await(t, "\n")
	stream.Process.Kill()
	stream.Wait() // killed
	return events.String()
}

// TestPageServes: `weir page` forwards what the node sends to clients with the token, at once,
// and ends with its signal.
func TestPageServes(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("watched", watchedRules))
	cmd := p.server.Command(weir, "--root", p.root, "page")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	done := background(t, cmd)
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, token, _ := strings.Cut(strings.TrimSpace(line), "/#")
	// the page needs the socket for reading alone
	if err := os.Remove(filepath.Join(p.root, "run/weir/weir.sock")); err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname() // in the title
	if err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command(weir, "version").Output() // in the head
	if err != nil {
		t.Fatal(err)
	}
	auth := "Authorization: Bearer " + token
	for _, c := range []struct {
		what, want, path string
		more             []string
	}{
		{"the page", "<title>Weir</title>", "/", nil},
		{"without a token", "token", "/v1/rules", nil},
		{"rules", "deny tcp from any to me 81", "/v1/rules", []string{"-H", auth}},
		{"status", strconv.Quote("host") + ":" + strconv.Quote(host), "/v1/status",
			[]string{"-H", auth}},
		{"version", `"weir":` + strconv.Quote(strings.Fields(string(version))[1]), "/v1/status",
			[]string{"-H", auth}},
		{"a change", "not found", "/v1/do", []string{"-H", auth, "-d", `{"line":"flush"}`}},
		{"why", `"rule":160`, "/v1/why", []string{"-H", auth, "-d",
			`{"packet":"in via eth0 udp 10.66.0.2:9 -> 10.66.0.1:5353"}`}},
	} {
		got, err := get(p.server, append([]string{address + c.path}, c.more...)...)
		if err != nil || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q: %v", c.what, got, c.want, err)
		}
	}
	events := pageEvents(t, p, address, auth)
	if all := parse(t, events); len(all) != 1 || all[0].Verdict.Rule != 160 {
		t.Errorf("events: %q", events)
	}
	socket := []string{"--unix-socket", filepath.Join(p.root, "run/weir/read.sock")}
	for header, want := range map[string]string{"Host: localhost:8080": "<title>Weir",
		"Host: evil.example": "unknown host name", "Origin: http://evil.example": "other sites"} {
		if got, _ := get(p.server, append(socket, "-H", header,
			"http://localhost/")...); !strings.Contains(got, want) {
			t.Errorf("on the socket with %s: %q", header, got)
		}
	}
	cmd.Process.Signal(syscall.SIGINT)
	if err := <-done; err != nil {
		t.Errorf("weir page: %v", err)
	}
}

// TestLongRatesAndBundle: fw show -r shows rates and rules that were never hit, and a bundle has
// what a bug report needs, without secrets and addresses.
func TestLongRatesAndBundle(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("etc/weir/rules", watchedRules))
	c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
				c.Write([]byte("datagram"))
			}
		}
	})
	rated := regexp.MustCompile(`(?m)^ *00160 +\d+ +\d+ +\d*[1-9]\d*\.\d/s deny udp`)
	var out string
	eventually(t, "datagrams are refused while it looks", func() error {
		if out = p.weir("fw", "show", "-r"); !rated.MatchString(out) {
			return errors.New(out)
		}
		return nil
	})
	close(stop)
	wg.Wait()
	if !regexp.MustCompile(`(?m)^ *00150 +0 +0 +never deny tcp`).MatchString(out) ||
		!strings.HasPrefix(out, "never: not since 20") {
		t.Errorf("fw show -r:\n%s", out)
	}
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	p.weir("doctor", "--bundle", file, "--mask")
	list, err := exec.Command("tar", "-xzOf", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"deny tcp from any to me 81",
		`weir_rule_packets_total{rule="160"}`, `"kind":"drop"`, "ipv4-", "PRETTY_NAME",
		`"healthy":true`} {
		if !bytes.Contains(list, []byte(want)) {
			t.Errorf("the bundle lacks %q", want)
		}
	}
	if bytes.Contains(list, []byte("10.66.0.")) {
		t.Error("addresses are not masked")
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if _, stderr, err := p.try("doctor", "--bundle", file); err == nil ||
		!strings.Contains(stderr, "exists") {
		t.Errorf("a file is overwritten: %v %s", err, stderr)
	}
}
