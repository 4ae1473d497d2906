package test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// TestWhyOfANode: the node's answer uses its tables, interfaces and live states, and a query counts
// nothing.
func TestWhyOfANode(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("my.rules", `
add 1 check-state
add 10 deny ip from table(bad) to any
add 20 allow tcp from any to me 22 setup keep-state
add 30 reset tcp from any to me 23
`))
	why := func(about, want string) {
		t.Helper()
		if out := p.weir("fw", "why", about); !strings.Contains(out, want) {
			t.Errorf("%s: want %q in\n%s", about, want, out)
		}
	}
	why("in via eth0 tcp 10.66.0.2:4000 -> 10.66.0.1:22", "is passed by rule 20:")
	why("in via eth0 tcp 10.66.0.2:4000 -> 10.66.0.1:22 flags A", "is dropped by rule 65535:")
	why("in via eth0 tcp 10.66.0.2:4000 -> 10.66.0.1:23", "The sender gets: TCP reset.")
	p.weir("fw", "table", "bad", "add", "10.66.0.2")
	why("in via eth0 tcp 10.66.0.2:4000 -> 10.66.0.1:22", "is dropped by rule 10:")
	p.weir("fw", "table", "bad", "flush")

	c := dial(t, p.client, p.server, "10.66.0.1:22")
	if err := c.exchange(); err != nil {
		t.Fatal(err)
	}
	end := c.dialed.LocalAddr().String()
	var x api.Explanation
	p.json(&x, "fw", "why", "in via eth0 tcp "+end+" -> 10.66.0.1:22 flags A")
	if !x.Passed || x.Rule != 20 || !strings.Contains(x.Found, end) || len(x.Tries) != 2 ||
		x.Tries[0].Outcome != "found a state" {
		t.Errorf("of a packet of a live connection: %+v", x)
	}
	why("out via eth0 tcp 10.66.0.1:22 -> "+end+" flags A", "It belongs to the state ")
	before := p.weir("fw", "show")
	why("in via eth0 tcp 10.66.0.2:4000 -> 10.66.0.1:22", "is passed by rule 20:")
	if after := p.weir("fw", "show"); after != before {
		t.Errorf("a query has counted:\n%sbefore\n%s", after, before)
	}
	_, stderr, err := p.try("fw", "why", "in via eth9 tcp 10.66.0.2:4000 -> 10.66.0.1:22")
	if err == nil || !strings.Contains(stderr, `there is no interface "eth9"`) {
		t.Errorf("of an interface that is not there: %v %s", err, stderr)
	}
}

// TestStatusWaits: --wait sees a node that starts meanwhile, and gives up in time when none does.
func TestStatusWaits(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	began := time.Now()
	_, stderr, err := p.try("status", "--wait", "1s")
	if err == nil || !strings.Contains(stderr, "no node is running") ||
		time.Since(began) < time.Second {
		t.Errorf("without a node: %v after %v: %s", err, time.Since(began), stderr)
	}
	go func() {
		time.Sleep(300 * time.Millisecond)
		p.launch("--iface", "eth0")
	}()
	if out := p.weir("status", "--wait", testTimeout.String()); !strings.HasPrefix(out,
		"healthy, ") {
		t.Errorf("status of a node that started meanwhile:\n%s", out)
	}
}

// TestAPIRefusesBadRequests: whatever comes over the socket, the node answers with an error and
// keeps running.
func TestAPIRefusesBadRequests(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules", p.file("my.rules", "add 1 allow ip from any to any\n"))
	socket := filepath.Join(p.root, "run/weir/weir.sock")
	info, err := os.Stat(socket)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string,
		string) (net.Conn, error) {
		return net.Dial("unix", socket)
	}}}
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/do", `{"line":"allwo ip from any to any"}`, 422},
		{"POST", "/v1/do",
			`{"line":"add 5 allow ip from any to any\nadd 6 allow ip from any to any"}`, 422},
		{"POST", "/v1/do", `{"line":""}`, 422},
		{"POST", "/v1/do", `{"lime":"delete 1"}`, 400},
		{"POST", "/v1/do", `{"line":"delete 1"} {}`, 400},
		{"POST", "/v1/do", `{"line":`, 400},
		{"POST", "/v1/do", ``, 400},
		{"POST", "/v1/load", `{"name":"x","text":"nonsense"}`, 422},
		{"POST", "/v1/commands", `{"name":"x","text":"flush\nnonsense"}`, 422},
		{"POST", "/v1/commands", `{"text":"delete 1"} {}`, 400},
		{"POST", "/v1/load",
			`{"name":"x","text":"add 1 allow ip from any to any","confirm":"soon"}`, 422},
		{"POST", "/v1/load", `{"name":"x","text":"add 1 allow ip from any to any","confirm":"-5s"}`,
			422},
		{"POST", "/v1/why", `{"packet":"nonsense"}`, 422},
		{"POST", "/v1/confirm", ``, 422},
		{"GET", "/v1/do", ``, 405},
		{"GET", "/v1/nothing", ``, 404},
	} {
		r, err := http.NewRequest(c.method, "http://localhost"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		w, err := client.Do(r)
		if err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
			continue
		}
		text, err := io.ReadAll(w.Body)
		w.Body.Close()
		if err != nil || w.StatusCode != c.status ||
			(c.status == 422 && !bytes.Contains(text, []byte(`"message":`))) {
			t.Errorf("%s %s %s: %s, %v, %s", c.method, c.path, c.body, w.Status, err, text)
		}
	}
	if out := p.weir("fw",
		"list"); out != "00001 allow ip from any to any\n65535 deny ip from any to any\n" {
		t.Errorf("the rules are now\n%s", out)
	}
}
