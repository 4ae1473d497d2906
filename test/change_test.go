package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestTrial: rules loaded on trial go again on their own, or stay when confirmed.
func TestTrial(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80)
	p.start("--iface", "eth0", "--rules", webRules(t))
	closed := p.file("closed.rules", "add 10 deny ip from any to any\n")

	p.weir("fw", "load", closed, "--confirm", "1h")
	if _, stderr, err := p.try("fw", "add", "5", "allow", "ip", "from", "any", "to",
		"any"); err == nil || !strings.Contains(stderr, "on trial") {
		t.Errorf("a change during a trial: %v, %s", err, stderr)
	}
	if out := p.weir("status"); !strings.Contains(out, "trial: ") {
		t.Errorf("status does not show the trial:\n%s", out)
	}
	refuse(t, p.client, "http://10.66.0.1/")
	p.weir("fw", "revert")
	reach(t, p.client, "http://10.66.0.1/")

	p.weir("fw", "load", closed, "--confirm", "1s")
	eventually(t, "the previous rules come back", func() error {
		_, err := curl(p.client, "http://10.66.0.1/")
		return err
	})
	if _, stderr, err := p.try("fw", "confirm"); err == nil ||
		!strings.Contains(stderr, "no rule set is on trial") {
		t.Errorf("confirm afterwards: %v, %s", err, stderr)
	}

	p.weir("fw", "load", "--confirm", "1h", closed)
	p.weir("fw", "confirm")
	refuse(t, p.client, "http://10.66.0.1/")

	p.weir("fw", "load", "--confirm", "1h", webRules(t))
	reach(t, p.client, "http://10.66.0.1/")
	if out := p.weir("fw", "revert"); out != "1 rule from before the trial in force\n" {
		t.Errorf("fw revert says %q", out)
	}
	refuse(t, p.client, "http://10.66.0.1/")

	// A trial that dies with its agent is over: the next start has the previous rules.
	p.weir("fw", "load", "--confirm", "1h", webRules(t))
	reach(t, p.client, "http://10.66.0.1/")
	p.kill()
	p.start("--iface", "eth0")
	refuse(t, p.client, "http://10.66.0.1/")
	// And a clean stop ends it at once.
	p.weir("fw", "load", "--confirm", "1h", webRules(t))
	p.stop()
	refuse(t, p.client, "http://10.66.0.1/")
}

// TestChangesSurvive: what `weir fw` changed is in force after a restart, and gone when the rule
// file is edited.
func TestChangesSurvive(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	rules := p.file("etc/weir/rules", "add 100 allow tcp from any to me 22\n")
	p.start("--iface", "eth0")
	if out := p.weir("fw", "add",
		"allow tcp from table(offices) to me 8080 // for 'offices'"); out != "00200 allow tcp "+
		"from table(offices) to me 8080 // for 'offices'\n" {
		t.Errorf("add says %q", out)
	}
	p.weir("fw", "add", "300", "set", "5", "count", "ip", "from", "any", "to", "any")
	p.weir("fw", "table", "offices", "add", "10.66.0.0/24", "7", "fd66::/64")
	p.weir("fw", "set", "disable", "5")
	p.weir("fw", "delete", "100")
	list := p.weir("fw", "list", "-S")
	const want = `00200 set 0 allow tcp from table(offices) to me 8080 // for 'offices'
# DISABLED 00300 set 5 count ip from any to any
65535 set 31 deny ip from any to any
`
	if list != want {
		t.Errorf("got\n%swant\n%s", list, want)
	}
	p.stop()
	p.start("--iface", "eth0")
	if again := p.weir("fw", "list", "-S"); again != list {
		t.Errorf("after a restart\n%sbefore\n%s", again, list)
	}
	if members := p.weir("fw", "table", "offices",
		"list"); members != "10.66.0.0/24 7\nfd66::/64 0\n" {
		t.Errorf("after a restart the table holds\n%s", members)
	}
	if found := p.weir("fw", "table", "offices", "lookup",
		"10.66.0.9"); found != "10.66.0.0/24 7\n" {
		t.Errorf("lookup says %q", found)
	}
	p.kill()
	p.start("--iface", "eth0")
	if again := p.weir("fw", "list", "-S"); again != list {
		t.Errorf("after a crash\n%sbefore\n%s", again, list)
	}
	p.stop()

	p.file("etc/weir/rules", "add 7 allow ip from any to any\n")
	p.start("--iface", "eth0")
	if out := p.weir("fw",
		"list"); out != "00007 allow ip from any to any\n65535 deny ip from any to any\n" {
		t.Errorf("after the rule file was edited:\n%s", out)
	}
	if _, err := os.Stat(filepath.Join(p.root, "var/lib/weir/rules.saved.old")); err != nil {
		t.Error(err)
	}
	p.stop()

	// A rule file with a mistake changes nothing, and the status says so.
	if err := os.WriteFile(rules, []byte("add 8 alow ip from any to any\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.start("--iface", "eth0")
	if out := p.weir("fw", "list"); !strings.HasPrefix(out, "00007 ") {
		t.Errorf("with a broken rule file:\n%s", out)
	}
	out, _, err := p.try("status")
	if err == nil || !strings.Contains(out, "NOT healthy") || !strings.Contains(out, "alow") {
		t.Errorf("status with a broken rule file: %v\n%s", err, out)
	}
}

// TestCommands goes through what else `weir fw` does to a running node.
func TestCommands(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	if out := p.weir("fw", "list"); out != "65535 allow ip from any to any\n" {
		t.Errorf("without a rule file:\n%s", out)
	}
	p.weir("fw", "add", "100", "allow", "tcp", "from", "any", "to", "me")
	p.weir("fw", "add", "100", "allow", "udp", "from", "any", "to", "me")
	p.weir("fw", "add", "200", "set", "1", "deny", "icmp", "from", "any", "to", "me")
	refused := func(want string, args ...string) {
		t.Helper()
		before := p.weir("fw", "list", "-S")
		out, stderr, err := p.try(args...)
		if err == nil || out != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: %v, %q, %q; want %q", args, err, out, stderr, want)
		}
		if after := p.weir("fw", "list", "-S"); after != before {
			t.Errorf("%v changed the rules:\n%s", args, after)
		}
	}
	refused("^", "fw", "add", "allow", "tpc", "from", "any", "to", "any")
	refused("no such rule", "fw", "list", "7")
	refused("300", "fw", "delete", "100", "300")
	refused("there is no rule 7", "fw", "zero", "7")
	refused("there is no table none", "fw", "table", "none", "list")
	refused("there is no table none", "fw", "table", "none", "delete", "10.0.0.1")
	p.weir("fw", "add", "150", "deny", "ip", "from", "table(bad)", "to", "any")
	p.weir("fw", "table", "bad", "add", "192.0.2.1")
	refused("in use by rule 150", "fw", "table", "bad", "destroy")
	if out := p.weir("fw", "table", "all",
		"list"); out != "--- table(bad), set(0) ---\n192.0.2.1/32 0\n" {
		t.Errorf("table all list:\n%s", out)
	}
	p.weir("fw", "table", "bad", "flush")
	p.weir("fw", "delete", "150")
	p.weir("fw", "table", "bad", "destroy")
	p.weir("fw", "set", "swap", "0", "1")
	p.weir("fw", "set", "move", "rule", "200", "to", "2")
	if out := p.weir("fw", "list", "-S"); out != `00100 set 1 allow tcp from any to me
00100 set 1 allow udp from any to me
00200 set 2 deny icmp from any to me
65535 set 31 allow ip from any to any
` {
		t.Errorf("after swap and move:\n%s", out)
	}
	var sets api.Sets
	p.weir("fw", "set", "disable", "1", "enable", "2")
	p.json(&sets, "fw", "set", "show")
	if len(sets.Disabled) != 1 || sets.Disabled[0] != 1 || len(sets.Used) != 2 {
		t.Errorf("sets: %+v", sets)
	}
	// An enabled set is in force at once.
	if ping(p.client, "-W1", "10.66.0.1") == nil {
		t.Error("a ping passes that rule 200 denies")
	}
	p.weir("fw", "set", "disable", "2")
	if err := ping(p.client, "10.66.0.1"); err != nil {
		t.Errorf("a ping is lost although set 2 is disabled: %v", err)
	}
	if _, stderr, err := p.try("fw", "flush"); err == nil ||
		!strings.Contains(stderr, "hint: weir fw flush -f") {
		t.Errorf("a flush without a terminal and -f: %v, %q", err, stderr)
	}
	p.weir("fw", "flush", "-f")
	if out := p.weir("fw", "list"); out != "65535 allow ip from any to any\n" {
		t.Errorf("after flush:\n%s", out)
	}
}

// TestReload: SIGHUP reads the rule file again; with a mistake in it nothing changes.
func TestReload(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.file("etc/weir/rules", "add 1 allow ip from any to any\n")
	p.start("--iface", "eth0")
	list := func(want string) func() error {
		return func() error {
			if out := p.weir("fw", "list"); !strings.HasPrefix(out, want) {
				return fmt.Errorf("rules are\n%s", out)
			}
			return nil
		}
	}
	p.file("etc/weir/rules", "add 2 allow ip from any to any\n")
	p.hup()
	eventually(t, "the edited file is in force", list("00002 "))
	p.file("etc/weir/rules", "add 3 allwo ip from any to any\n")
	p.hup()
	eventually(t, "the mistake is reported", func() error {
		if !strings.Contains(p.stderr.String(), "allwo") {
			return fmt.Errorf("the agent printed: %s", p.stderr)
		}
		return nil
	})
	if err := list("00002 ")(); err != nil {
		t.Error(err)
	}
}
