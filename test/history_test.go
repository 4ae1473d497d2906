package test

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/observe"
)

// TestEventsNamePods: an event of a refused packet has the pod's name, and a filter can use the
// tables of labels.
func TestEventsNamePods(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	h := newPodHost(t,
		"add check-state\nadd allow tcp from me to table(app=web) 80 setup keep-state\n")
	web, webPod := h.attach("web", "--label", "app=web")
	nginx(t, web, 80)
	outsider, _ := h.attach("outsider")
	url := "http://" + netip.AddrPortFrom(webPod.Addrs[0], 80).String() + "/"
	var seen []observe.Event
	eventually(t, "the node, which looks at names every second, knows them", func() error {
		begin := time.Now().Format(time.RFC3339Nano)
		refuse(t, outsider, url)
		seen = parse(t, h.weir("flow", "watch", "-j", "--since", begin, "--past",
			"deny tcp to table(app=web)"))
		if len(seen) == 0 || seen[0].From == "" {
			return fmt.Errorf("the events are %+v", seen)
		}
		return nil
	})
	reach(t, h.host, url)
	for _, e := range seen {
		if e.From != "pod:outsider" || e.To != "pod:web" || e.Recv != "pod:outsider" ||
			e.Verdict.Rule != 65535 || !e.Refused() {
			t.Errorf("%s", e.Text())
		}
	}
	if other := parse(t, h.weir("flow", "watch", "-j", "--since", "1m", "--past",
		"deny tcp from table(app=web)")); len(other) != 0 {
		t.Errorf("%+v", other)
	}
	var top api.Top
	h.json(&top, "flow", "top")
	if len(top.Refusals) == 0 || top.Refusals[0].SrcName != "pod:outsider" {
		t.Errorf("top: %+v", top.Refusals)
	}
	if out := h.weir("flow", "watch", "--since", "1m", "--past", "deny"); !strings.Contains(out,
		"pod:outsider(") {
		t.Errorf("%s", out)
	}
}

// TestEventsNameTablesServicesAndHosts: the node names tables and services; names of DNS are there
// only on request.
func TestEventsNameTablesServicesAndHosts(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0", "--rules",
		p.file("named", "table offices add 10.66.0.2\n"+watchedRules))
	hosts := p.file("hosts", "10.66.0.1 guarded.example\n10.66.0.2 visitor.example\n")
	lines := func(options string) <-chan string {
		cmd := p.server.Command("unshare", "-m", "sh", "-ec", "mount --bind "+hosts+
			" /etc/hosts; exec "+weir+" --root "+p.root+" flow watch "+options+" deny udp")
		out, to, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdout = to
		background(t, cmd)
		to.Close()
		all := make(chan string, 100)
		go func() {
			defer out.Close()
			for s := bufio.NewScanner(out); s.Scan(); {
				all <- s.Text()
			}
			close(all)
		}()
		return all
	}
	plain, named := lines(""), lines("--names")
	c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:5353")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// Each watcher begins at a moment of its own, and names come when they have been looked up.
	wantLine := func(lines <-chan string, words ...string) {
		t.Helper()
		var seen []string
		eventually(t, fmt.Sprintf("a line has %q", words), func() error {
			c.Write([]byte("datagram"))
			for {
				select {
				case line := <-lines:
					seen = append(seen, line)
				default:
					if n := len(seen); n == 0 || !containsAll(seen[n-1], words) {
						return fmt.Errorf("%q", seen)
					}
					return nil
				}
			}
		})
	}
	wantLine(named, "udp visitor.example(10.66.0.2:", "guarded.example(10.66.0.1:5353/mdns) in")
	wantLine(plain, "udp table:offices(10.66.0.2:", "-> 10.66.0.1:5353/mdns in")
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// TestHistoryOutlivesTheAgent: the next agent still has the events from before the kill, and those
// from while there was none.
func TestHistoryOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	p := newPair(t)
	rules := p.file("watched", watchedRules)
	p.start("--iface", "eth0", "--rules", rules)
	send := func(port int) {
		t.Helper()
		c, err := p.client.DialContext(t.Context(), "udp", fmt.Sprintf("10.66.0.1:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		c.Write([]byte("datagram"))
		c.Close()
	}
	send(5353)
	eventually(t, "the journal, written every second, has the first", func() error {
		text, err := os.ReadFile(filepath.Join(p.root, "var/lib/weir/events/events.jsonl"))
		if err == nil && !strings.Contains(string(text), "5353") {
			err = fmt.Errorf("it has %q", text)
		}
		return err
	})
	p.kill()
	send(5354)
	p.start("--iface", "eth0", "--rules", rules)
	send(5355)
	var all []observe.Event
	eventually(t, "the last one has an event", func() error {
		all = parse(t, p.weir("flow", "watch", "-j", "--since", "1h", "--past", "deny udp"))
		if n := len(all); n == 0 || all[n-1].Dst.Port() != 5355 {
			return fmt.Errorf("the events are %+v", all)
		}
		return nil
	})
	var ports []uint16
	var last time.Time
	for _, e := range all {
		ports = append(ports, e.Dst.Port())
		if e.At.Before(last.Add(-50 * time.Millisecond)) {
			t.Errorf("%s comes after an event of %s", e.Text(), last)
		}
		last = e.At
	}
	if !slices.Equal(ports, []uint16{5353, 5354, 5355}) {
		t.Errorf("the events have the ports %v", ports)
	}
	p.weir("down")
	p.wait()
	if _, err := os.Stat(filepath.Join(p.root, "var/lib/weir/events")); !os.IsNotExist(err) {
		t.Errorf("down leaves the history: %v", err)
	}
}
