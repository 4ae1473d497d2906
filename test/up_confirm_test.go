package test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// TestUpOnTrial: a rule file that cuts its owner off goes back alone to what was before: nothing on
// a new host, the saved rules later. Confirmed rules stay, also over a restart.
func TestUpOnTrial(t *testing.T) {
	t.Parallel()
	need(t, "ping")
	p := newPair(t)
	deny := p.file("deny.rules", "add 10 deny ip from any to any\n")
	allow := p.file("allow.rules", "add 10 allow ip from any to any\n")
	passes := func() error { return p.client.Command("ping", "-c1", "-W1", "10.66.0.1").Run() }
	status := func() (s api.Status) {
		t.Helper()
		out, _, _ := p.try("status", "-j") // fails while there is a problem
		unmarshal(t, out, &s)
		return s
	}
	p.start("--iface", "eth0", "--rules", deny, "--confirm", "1h")
	if !strings.Contains(p.stderr.String(), "on trial for ") {
		t.Errorf("the ready line does not mention the trial:\n%s", p.stderr)
	}
	if s := status(); s.Trial == nil || s.Default != "deny" {
		t.Errorf("status %+v", s)
	}
	if passes() == nil {
		t.Error("the rules on trial are not in force")
	}
	p.stop()
	p.start("--iface", "eth0", "--rules", deny, "--confirm", "1s")
	eventually(t, "nothing is denied again", passes)
	if s := status(); s.Trial != nil || s.Default != "allow" || s.Rules != 0 {
		t.Errorf("after the trial: %+v", s)
	}
	p.stop()

	p.start("--iface", "eth0", "--rules", allow, "--confirm", "10m")
	if out := p.weir("confirm"); out != "1 rule stay in force\n" {
		t.Error(out)
	}
	p.stop()
	p.start("--iface", "eth0", "--rules", deny, "--confirm", "3s")
	eventually(t, "the confirmed rules come back", passes)
	if s := status(); s.Default != "deny" || s.Rules != 1 || s.Trial != nil {
		t.Errorf("after the second trial: %+v", s)
	}
	p.stop()
	p.unconfirmed(deny)
	eventually(t, "a start does not take what was not confirmed", passes)
	p.stop()

	// The rules were in force before: there is nothing to try.
	p.start("--iface", "eth0", "--rules", allow)
	p.stop()
	p.start("--iface", "eth0", "--rules", allow, "--confirm", "1s")
	time.Sleep(1500 * time.Millisecond)
	if s := status(); s.Trial != nil || s.Default != "deny" {
		t.Errorf("rules that were in force: %+v", s)
	}
	if err := ping(p.client, "10.66.0.1"); err != nil {
		t.Errorf("rules that were in force: %v", err)
	}
	if _, stderr, err := p.try("up", "--confirm", "30s", "--boot"); err == nil ||
		!strings.Contains(stderr, "cannot be combined with --boot") {
		t.Errorf("--confirm and --boot: %v, %s", err, stderr)
	}
}

// unconfirmed starts with a rule file that was not confirmed: the previous rules are in force, and
// the status and the log say so. The command that the status names loads the file.
func (p *pair) unconfirmed(file string) {
	p.t.Helper()
	p.start("--iface", "eth0", "--rules", file)
	want := file + " was on trial and was not confirmed"
	out, _, err := p.try("status")
	if err == nil || !strings.Contains(out, want) || !strings.Contains(p.stderr.String(), want) {
		p.t.Errorf("status: %v\n%s\nlog:\n%s", err, out, p.stderr)
	}
	p.weir("fw", "load", "--confirm", "1h", file)
	if err := p.client.Command("ping", "-c1", "-W1", "10.66.0.1").Run(); err == nil {
		p.t.Error("the rules that were loaded are not in force")
	}
	p.weir("fw", "revert")
}
