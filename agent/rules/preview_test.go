package rules

import (
	"fmt"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

// newExplainer returns the rules of a host with eth0 and a pod.
func newExplainer(t *testing.T, text string) *Explainer {
	t.Helper()
	b, _ := newManager(t)
	if _, err := b.RunCommands(t.Context(), api.Commands{Name: "rules", Text: text}); err != nil {
		t.Fatal(err)
	}
	ifs := []firewall.Interface{{Index: 2, Name: "eth0",
		Addrs: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}}, {Index: 7, Name: "pod:web"}}
	return &Explainer{Manager: b, Options: firewall.DefaultOptions(),
		Interfaces: func() []firewall.Interface { return ifs },
		Labels: func() map[string][]rule.TableEntry {
			return map[string][]rule.TableEntry{"app=web": {{Prefix: netip.MustParsePrefix(
				"10.88.0.2/32")}}}
		}}
}

// journal makes events of one kind, one a second.
type journal []observe.Event

func (j *journal) add(kind firewall.EventKind, n int, iface, proto, src, dst string, rule uint16) {
	for range n {
		var e observe.Event
		e.At = time.Unix(1700000000+int64(len(*j)), 0)
		e.Kind, e.Recv = kind, iface
		e.Proto, _ = packet.ParseProto(proto)
		e.Src, e.Dst = netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
		e.Src = netip.AddrPortFrom(e.Src.Addr(), e.Src.Port()+uint16(len(*j)))
		e.Verdict = firewall.Verdict{Pass: kind == firewall.EventStart, Rule: rule}
		*j = append(*j, e)
	}
}

func (j journal) open() (iter.Seq[observe.Event], error) { return slices.Values(j), nil }

// TestPreviewReplaysTheJournal: the flows of the journal are decided again by the rules in force
// and by the changed ones, with the host's tables, labels and interfaces. Only flows about which
// they differ are listed, those that would end or begin first. Nothing changes.
func TestPreviewReplaysTheJournal(t *testing.T) {
	x := newExplainer(t, `-f flush
add 100 allow tcp from any to table(app=web) 80 in via eth0 keep-state
add 200 allow udp from any to me 53 keep-state
add 300 allow tcp from any to me 22 keep-state
table bad add 192.0.2.66
add 900 deny ip from any to any
`)
	var j journal
	j.add(firewall.EventStart, 5, "eth0", "tcp", "192.0.2.66:1000", "10.88.0.2:80", 100)
	j.add(firewall.EventStart, 3, "eth0", "tcp", "192.0.2.7:2000", "10.88.0.2:80", 100)
	j.add(firewall.EventStart, 2, "eth0", "udp", "192.0.2.8:3000", "10.0.0.1:53", 200)
	j.add(firewall.EventDrop, 4, "eth0", "tcp", "192.0.2.9:4000", "10.0.0.1:443", 900)
	j.add(firewall.EventDrop, 1, "eth0", "tcp", "192.0.2.9:5000", "10.0.0.1:22", 900)
	j[len(j)-1].TCPFlags = packet.FlagACK // begins no flow: rule 300 takes only what sets up one
	j.add(firewall.EventDrop, 1, "gone0", "tcp", "192.0.2.9:6000", "10.0.0.1:443", 900)
	j.add(firewall.EventDrop, 1, "eth0", "tcp", "192.0.2.9:7000", "10.0.0.1:443", 0)
	j[len(j)-1].Verdict.Reason = firewall.ReasonTCPWindow
	j = append(j, j[0]) // the same flow again, as its end reports it
	j[len(j)-1].Kind = firewall.EventEnd
	before := fmt.Sprint(x.Manager.List())

	a, err := x.Preview(t.Context(), `# no more of these, and a web server of the host
add 50 deny ip from table(bad) to any
add 310 allow tcp from any to me 443 setup keep-state
delete 200
add 200 allow udp from any to me 53,54 keep-state
`, j.open)
	if err != nil || !a.Fine {
		t.Fatal(err, a.Message, a.Mistakes)
	}
	r := a.Replay
	if r.Flows != 15 || r.Refused != 5 || r.Passed != 4 || r.Other != 2 || r.Same != 4 ||
		r.Skipped != 2 || r.LeftOut != 0 || r.From.Unix() != 1700000000 {
		t.Errorf("replay: %+v", r)
	}
	lines := []string{}
	for _, c := range r.Changes {
		lines = append(lines, fmt.Sprintf("%d %s %s>%s:%d %v %d %v %d", c.Flows, c.Proto, c.Src,
			c.Dst, c.Port, c.Now.Passed, c.Now.Rule, c.Then.Passed, c.Then.Rule))
	}
	if want := []string{"5 tcp 192.0.2.66>10.88.0.2:80 true 100 false 50",
		"4 tcp 192.0.2.9>10.0.0.1:443 false 900 true 310"}; !slices.Equal(lines[:2], want) ||
		len(lines) != 3 || !strings.HasPrefix(lines[2], "2 udp") {
		t.Errorf("changes %q", lines)
	}
	if fmt.Sprint(a.Added) != fmt.Sprint([]api.Rule{{Number: 50,
		Text: "deny ip from table(bad) to any"}, {Number: 200,
		Text: "allow udp from any to me 53,54 keep-state"}, {Number: 310,
		Text: "allow tcp from any to me 443 setup keep-state"}}) || len(a.Removed) != 1 ||
		a.Removed[0].Text != "allow udp from any to me 53 keep-state" {
		t.Errorf("added %+v, removed %+v", a.Added, a.Removed)
	}
	if after := fmt.Sprint(x.Manager.List()); after != before {
		t.Errorf("the rules were\n%s\nand are\n%s", before, after)
	}
}

// TestPreviewChecks: mistakes at their places, what is doubtful, and the command of a shell.
func TestPreviewChecks(t *testing.T) {
	x := newExplainer(t, "-f flush\nadd 100 allow ip from any to any\n")
	for _, tc := range []struct{ text, want string }{
		{"add 5 allow tcp from any to me 22\nadd 6 alow ip from any to any",
			"2:7 "},
		{"", "there is no command"},
		{"# nothing", "there is no command"},
		{"table t destroy\nadd 5 deny ip from table(t) to any", "there is no table t"},
		{"add 200 deny ip from 10.0.0.0/8 to any", "is never reached"},
		{"add 5 deny ip from any to any via eht0", "there is no interface eht0"},
		{"add 5 deny tcp from any to me 80 // it's",
			`weir fw add 5 deny tcp from any to me 80 // 'it'\''s'`},
		{"add 5 deny ip from { 10.0.0.1 or 10.0.0.2 } to any",
			"weir fw add 5 deny ip from '{' 10.0.0.1 or 10.0.0.2 '}' to any"},
		{"flush", "weir fw flush -f"},
		{"delete 100 // x\rreboot", "line 1 has a character"},
		{"delete 100\nadd 100 allow ip from any to any // \u202e", "line 2 has a character"},
		{"delete 100\r\n", "weir fw delete 100"},
		{"delete 100\n\n# comment\nadd 100 deny ip from any to any",
			"weir ipfw -q /dev/stdin <<'WEIR'\ndelete 100\nadd 100 deny ip from any to any\nWEIR"},
	} {
		a, err := x.Preview(t.Context(), tc.text, nil)
		if err != nil {
			t.Fatal(err)
		}
		said := a.Message + "\n" + a.Command + "\n" + strings.Join(a.Warnings, "\n")
		for _, m := range a.Mistakes {
			said += fmt.Sprintf("\n%d:%d %s", m.Line, m.Column, m.Message)
		}
		if !strings.Contains(said, tc.want) || a.Fine != (a.Command != "") || a.Replay != nil {
			t.Errorf("%q: %q in %q", tc.text, tc.want, said)
		}
	}
	x.Manager.config.Shared = func() (Version, bool) { return Version{}, false }
	a, err := x.Preview(t.Context(), "add 5 deny ip from any to me 80", nil)
	if err != nil || !strings.Contains(strings.Join(a.Warnings, "\n"), "would be refused now") {
		t.Errorf("on a host of a cluster: %q %v", a.Warnings, err)
	}
	x.Manager.config.Shared = nil
}

// TestPreviewReadsNoFile: members of group weir may ask for a preview, and must not read what root
// can: neither its content nor whether it is there.
func TestPreviewReadsNoFile(t *testing.T) {
	dir := t.TempDir()
	known, secret := filepath.Join(dir, "known"), filepath.Join(dir, "secret")
	for file, text := range map[string]string{known: "10.0.0.1\n", secret: "root:secret\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x := newExplainer(t, "-f flush\ntable a create file "+known+
		"\nadd 100 allow ip from table(a) to any\n")
	said := map[string]bool{}
	for _, file := range []string{secret, filepath.Join(dir, "missing"), dir} {
		a, err := x.Preview(t.Context(), "table b create file "+file, nil)
		if err != nil || a.Fine || !strings.Contains(a.Message, "does not read files") {
			t.Errorf("%s: %v, %+v", file, err, a)
		}
		said[a.Message] = true
	}
	if len(said) != 1 {
		t.Errorf("the answers tell files apart: %v", said)
	}
	a, err := x.Preview(t.Context(), "add 50 deny ip from table(a) to any 25", nil)
	if err != nil || !a.Fine {
		t.Errorf("with a file that the rules in force have: %v, %+v", err, a)
	}
}

// TestPreviewIsBounded: a flood of refused packets takes no space of the flows that pass, and a
// replay ends in time.
func TestPreviewIsBounded(t *testing.T) {
	x := newExplainer(t, "-f flush\nadd 100 allow tcp from any to me 80 keep-state\n")
	var j journal
	for i := range mostFlows + 500 {
		j.add(firewall.EventDrop, 1, "eth0", "udp", fmt.Sprintf("198.18.%d.%d:9", i>>8&255, i&255),
			"10.0.0.1:9", 65535)
	}
	j.add(firewall.EventStart, 1, "eth0", "tcp", "192.0.2.7:1", "10.0.0.1:80", 100)
	commands, err := rule.ParseCommands("change", "delete 100", nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := x.preview(commands)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if r := p.replay(t.Context(), slices.Values(j), time.Hour); r.Refused != 1 ||
		r.Flows != mostFlows+1 || r.LeftOut != 500 {
		t.Errorf("%+v", r)
	}
	if r := p.replay(t.Context(), slices.Values(j), 0); r.Flows != 0 || r.LeftOut != len(j) {
		t.Errorf("without time: %+v", r)
	}
}
