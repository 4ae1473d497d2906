package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// wantPorts makes sure that the server's ports of one list answer and those of the other do not.
func (p *pair) wantPorts(t *testing.T, when, open, closed string) {
	t.Helper()
	for port := range strings.FieldsSeq(open) {
		if _, err := p.getPort(port, testTimeout); err != nil {
			t.Errorf("%s: port %s does not answer: %v", when, port, err)
		}
	}
	for port := range strings.FieldsSeq(closed) {
		out, err := p.getPort(port, 700*time.Millisecond)
		if err == nil {
			t.Errorf("%s: port %s answers", when, port)
		} else if strings.Contains(out, "refused") {
			t.Errorf("%s: port %s: %s", when, port, out)
		}
	}
}

// getPort asks a port of the server for its page.
func (p *pair) getPort(port string, most time.Duration) (string, error) {
	out, err := p.client.Command("curl", "-sS", "--max-time", fmt.Sprint(most.Seconds()),
		"http://10.66.0.1:"+port+"/").CombinedOutput()
	return string(out), err
}

// TestLockDown: a boot whose rules cannot be used allows what answers the host, and ssh from where
// the readable lines let it in. Without the word of a boot it is refused, and where no rules were
// ever given everything passes. What an earlier agent has left goes before.
func TestLockDown(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 22, 80)
	nginx(t, p.client, 80)
	broken := p.file("rules",
		"add check-state\nadd allow tcp from 10.66.0.2 to me 22,80 setup keep-state\n"+
			"add allow tcp frm any to me 80\n")
	p.refused("--iface", "eth0", "--rules", broken)
	p.wantPorts(t, "after a start that was refused on a fresh host", "22 80", "")
	p.start("--iface", "eth0", "--rules", broken, "--boot")
	p.wantPorts(t, "locked down", "22", "80")
	reach(t, p.server, "http://10.66.0.2/")
	reach(t, p.server, "http://[fd66::2]/")
	var status api.Status
	out, _, _ := p.try("status", "-j") // fails, since it is not healthy
	unmarshal(t, out, &status)
	if status.Healthy || len(status.Problems) != 1 ||
		!strings.Contains(status.Problems[0].What, "locked down") {
		t.Errorf("status: %+v", status)
	}
	if _, err := os.Stat(filepath.Join(p.root, "var/lib/weir/rules.saved")); !os.IsNotExist(err) {
		t.Errorf("the rules of the lock-down are saved: %v", err)
	}
	good := p.file("rules", "add check-state\nadd allow tcp from any to me 80 setup keep-state\n")
	p.weir("fw", "load", good)
	p.wantPorts(t, "with rules", "80", "22")
	if p.json(&status, "status"); !status.Healthy {
		t.Errorf("status: %+v", status.Problems)
	}
	p.kill()
	if err := os.RemoveAll(filepath.Join(p.root, "var")); err != nil {
		t.Fatal(err)
	}
	p.file("rules", "add nonsense\n")
	p.refused("--iface", "eth0", "--rules", broken, "--boot")
	p.wantPorts(t, "what was in force is in force no more:", "80", "22")
	p.weir("down")
	p.start("--iface", "eth0", "--boot")
	p.wantPorts(t, "where no rules were ever given", "22 80", "")
}

// noLastResort wants nothing of the last resort left.
func (p *pair) noLastResort(t *testing.T, when string) {
	t.Helper()
	if out, err := p.server.Command("tc", "filter", "show", "dev", "eth0",
		"ingress").CombinedOutput(); err != nil || strings.Contains(string(out), "weir_last") {
		t.Errorf("%s the last resort is left: %v\n%s", when, err, out)
	}
}

// TestLastResort: a host whose agent cannot start at all is closed except for answers and ssh,
// until one starts, or until weir down. A host with rules in force, and one that never had rules,
// stay as they are.
func TestLastResort(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 22, 80)
	nginx(t, p.client, 80)
	p.weir("up", "--last-resort")
	p.wantPorts(t, "without any rules", "22 80", "")
	p.file("etc/weir/rules",
		"add check-state\nadd allow tcp from any to me 80 setup keep-state\n"+
			"add allow tcp from me to any setup keep-state\n")
	bad := p.file("etc/weir/weir.toml", "nonsense = 1\n")
	p.refused()
	for range 2 { // systemd tries again
		if _, stderr, err := p.try("up", "--last-resort"); err != nil ||
			!strings.Contains(stderr, "closed eth0 to all") {
			t.Fatalf("%v\n%s", err, stderr)
		}
	}
	p.wantPorts(t, "closed", "22", "80")
	reach(t, p.server, "http://10.66.0.2/")
	reach(t, p.server, "http://[fd66::2]/")
	if out, err := p.client.Command("curl", "-sS", "--max-time", "0.7",
		"http://[fd66::1]/").CombinedOutput(); err == nil {
		t.Errorf("by IPv6 port 80 answers: %s", out)
	}
	if out, err := p.client.Command("curl", "-sS", "--max-time",
		fmt.Sprint(testTimeout.Seconds()), "http://[fd66::1]:22/").CombinedOutput(); err != nil {
		t.Errorf("by IPv6 port 22 does not answer: %v %s", err, out)
	}
	if err := ping(p.server, "10.66.0.2"); err != nil {
		t.Error(err)
	}
	if out, err := p.client.Command("ping", "-c1", "-W1",
		"10.66.0.1").CombinedOutput(); err == nil {
		t.Errorf("the host answers a ping: %s", out)
	}
	p.weir("down")
	p.noLastResort(t, "after weir down")
	p.wantPorts(t, "after weir down", "22 80", "")
	if _, stderr, err := p.try("up", "--last-resort"); err != nil ||
		!strings.Contains(stderr, "closed eth0 to all") {
		t.Fatalf("closed again: %v\n%s", err, stderr)
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	p.start("--iface", "eth0")
	p.wantPorts(t, "with an agent", "80", "22")
	p.noLastResort(t, "with an agent")
	p.kill()
	if _, stderr, err := p.try("up", "--last-resort"); err != nil || stderr != "" {
		t.Errorf("where an agent was: %v\n%s", err, stderr)
	}
}
