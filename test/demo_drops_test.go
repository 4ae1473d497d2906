package test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/demo"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/observe"
)

// TestLongEveryDropOfTheDemoHasAnEvent: tcpdump listens to all three hosts of the demo. Every
// connection attempt that it sees come in and that nothing answers was dropped. Each such packet
// has its event with the rule that the demo names, and no event is without its packet.
func TestLongEveryDropOfTheDemoHasAnEvent(t *testing.T) {
	nstest.RequireRoot(t)
	need(t, "tcpdump", "nsenter")
	t.Parallel()
	cmd := exec.Command(weir, "demo", "-j")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	hosts := map[string]*demoHost{}
	for _, h := range []struct{ name, dir string }{{"server", ""}, {"left", "left"},
		{"right", "right"}} {
		hosts[h.name] = listenTo(t, cmd.Process.Pid, h.name, h.dir)
	}
	if err := <-ended; err != nil {
		t.Fatalf("weir demo: %v\n%s", err, stderr.String())
	}
	var r demo.Result
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	for _, h := range hosts {
		h.end(t)
	}
	drops := 0
	check := func(v demo.Visit, seenAt, toldBy *demoHost) {
		t.Helper()
		if v.Passed {
			return
		}
		u, err := url.Parse(strings.TrimPrefix(v.What, "GET "))
		if err != nil {
			t.Fatal(err)
		}
		to := netip.MustParseAddrPort(u.Host)
		dropped, reported := map[netip.AddrPort]int{}, map[netip.AddrPort]int{}
		for way, n := range seenAt.syns {
			if way.to == to && !seenAt.answered[way] {
				dropped[way.from] += n
				drops += n
			}
		}
		for _, e := range toldBy.events {
			if e.Refused() && e.Dst == to {
				if reported[e.Src]++; e.Verdict.Rule != v.Rule {
					t.Errorf("%s: %s, the demo says rule %d", v.What, e.Text(), v.Rule)
				}
			}
		}
		if len(dropped) == 0 || fmt.Sprint(dropped) != fmt.Sprint(reported) {
			t.Errorf("%s to %s: tcpdump sees the drops %v, the events %v", v.Who, to, dropped,
				reported)
		}
	}
	for _, v := range r.Visits {
		check(v, hosts["server"], hosts["server"])
	}
	for _, v := range append(r.Containers.Visits, r.TwoHosts.Visits...) {
		// inside the tunnel tcpdump sees nothing: what goes there came from a container on the left
		check(v, hosts["left"], hosts[v.Host])
	}
	if drops < 10 {
		t.Errorf("tcpdump saw only %d drops", drops)
	}
	t.Logf("%d drops", drops)
}

// demoHost is a host of a running demo, with programs that listen to it.
type demoHost struct {
	dump, watch      *exec.Cmd
	output, reported bytes.Buffer

	syns     map[way]int  // that came in
	answered map[way]bool // by a SYN and ACK that came in
	events   []observe.Event
}

type way struct{ from, to netip.AddrPort }

// listenTo waits until a host of the demo is there, and has tcpdump and weir flow watch listen to
// it.
func listenTo(t *testing.T, pid int, name, dir string) *demoHost {
	t.Helper()
	h := &demoHost{}
	t.Cleanup(func() {
		for _, c := range []*exec.Cmd{h.dump, h.watch} {
			if c != nil && c.ProcessState == nil {
				c.Process.Kill()
				c.Wait()
			}
		}
	})
	var netns string
	// A short pause: a longer one could miss the first packets.
	poll := func(what string, try func() bool) {
		t.Helper()
		waitFor(t, testTimeout, 2*time.Millisecond, what, func() error {
			if !try() {
				return errors.New("it does not")
			}
			return nil
		})
	}
	poll(name+" has a namespace", func() bool {
		all, _ := filepath.Glob(fmt.Sprintf("/run/netns/weir-%d-*%s*", pid, name))
		if len(all) == 1 {
			netns = all[0]
		}
		return netns != ""
	})
	// As a namespace appears in the directory before it is mounted there, entering it may fail at
	// first. The demo stands still meanwhile, so that tcpdump sees its first packet.
	poll("tcpdump listens to "+name, func() bool {
		syscall.Kill(pid, syscall.SIGSTOP)
		defer syscall.Kill(pid, syscall.SIGCONT)
		// Headers alone, and space for many: tcpdump loses what it does not print in time.
		h.dump = exec.Command("nsenter", "--net="+netns, "tcpdump", "-l", "--immediate-mode", "-nn",
			"-s", "128", "-B", "65536", "-i", "any", "tcp")
		h.dump.Stdout = &h.output
		errs, err := h.dump.StderrPipe()
		if err != nil || h.dump.Start() != nil {
			return false
		}
		var b [4096]byte
		var text strings.Builder
		for !strings.Contains(text.String(), "listening on any") {
			n, err := errs.Read(b[:])
			if text.Write(b[:n]); err != nil {
				h.dump.Wait()
				return false
			}
		}
		return true
	})
	poll("the node of "+name+" answers", func() bool {
		all, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("weir-%d-demo-*", pid),
			dir))
		if len(all) != 1 || exec.Command(weir, "--root", all[0], "status").Run() != nil {
			return false
		}
		h.watch = exec.Command(weir, "--root", all[0], "flow", "watch", "-j", "--since", "1h")
		h.watch.Stdout = &h.reported
		return h.watch.Start() == nil
	})
	return h
}

var segments = regexp.MustCompile(`(?m)^\S+ \S+ +In +IP6? (\S+)\.(\d+) > (\S+)\.(\d+): Flags \[(S\.?)\]`)

// end reads what tcpdump and the node printed. The node has ended already.
func (h *demoHost) end(t *testing.T) {
	t.Helper()
	h.watch.Wait() // fails: the node has left it
	h.dump.Wait()  // fails: the demo ends what still runs in its namespaces
	h.syns, h.answered = map[way]int{}, map[way]bool{}
	for _, m := range segments.FindAllStringSubmatch(h.output.String(), -1) {
		from, to := netip.MustParseAddr(m[1]), netip.MustParseAddr(m[3])
		var ports [2]uint16
		fmt.Sscan(m[2], &ports[0])
		fmt.Sscan(m[4], &ports[1])
		w := way{netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])}
		if m[5] == "S" {
			h.syns[w]++
		} else {
			h.answered[way{w.to, w.from}] = true
		}
	}
	h.events = parse(t, h.reported.String())
}
