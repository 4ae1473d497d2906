package test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/pcap"
	"github.com/weirnet/weir/observe"
)

// TestCaptureSaysWhy: a capture has every packet of a refused and of an allowed connection with rule and verdict, other programs can
// read it, and the events that a replay of it tells are those that the node told.
func TestCaptureSaysWhy(t *testing.T) {
	need(t, "curl", "tcpdump")
	p := newPair(t)
	rules := p.file("watched", watchedRules)
	p.start("--iface", "eth0", "--rules", rules)
	l, err := p.server.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveEcho(l)
	events := p.watch("tcp")
	p.weir("fw", "zero")
	file := filepath.Join(t.TempDir(), "out.pcapng")
	cmd := p.server.Command(weir, "--root", p.root, "flow", "capture", "-w", file, "tcp")
	var talk bytes.Buffer
	cmd.Stderr = &talk
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	c, err := p.client.DialContext(t.Context(), "tcp", "10.66.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "hello")
	io.ReadFull(c, make([]byte, 5))
	c.Close()
	knock(t, p, 81)
	time.Sleep(300 * time.Millisecond)
	cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil || !strings.Contains(talk.String(), " 0 left out") {
		t.Errorf("%v %s", err, talk.String())
	}
	var counters api.Rules
	p.json(&counters, "fw", "show")
	comments := readComments(t, file)
	for comment, number := range map[string]uint16{
		"weir: drop by rule 150, reason rule, hook in recv eth0: deny tcp from any to me 81": 150,
		"weir: pass by rule 100, reason rule, hook":                                          100,
	} {
		for _, r := range counters.Rules {
			if r.Number == number && (countPrefix(comments, comment) != r.Packets || r.Packets == 0) {
				t.Errorf("rule %d counts %d packets; comments: %q", number, r.Packets, comments)
			}
		}
	}
	if out, err := exec.Command("tcpdump", "-nr", file).Output(); err != nil || strings.Count(string(out), "\n") != len(comments) {
		t.Errorf("tcpdump reads %q, %v; %d packets were written", out, err, len(comments))
	}
	var live, again []string
	for _, e := range events() {
		if e.Kind == firewall.EventStart || e.Refused() {
			live = append(live, fmt.Sprint(observe.KindName(e.Kind), e.Proto, e.Src, e.Dst, e.Verdict.Rule, e.Recv))
		}
	}
	for _, e := range parse(t, p.weir("flow", "watch", "-j", "--from", file, "-f", rules, "--me", "10.66.0.1")) {
		if e.Kind == firewall.EventStart || e.Refused() {
			again = append(again, fmt.Sprint(observe.KindName(e.Kind), e.Proto, e.Src, e.Dst, e.Verdict.Rule, e.Recv))
		}
	}
	if len(live) < 2 || !slices.Equal(live, again) {
		t.Errorf("the node told\n%s\nthe capture tells\n%s", strings.Join(live, "\n"), strings.Join(again, "\n"))
	}
}

func countPrefix(all []string, prefix string) (n uint64) {
	for _, s := range all {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func readComments(t *testing.T, file string) (all []string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec.Comment)
	}
}
