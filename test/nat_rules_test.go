package test

import (
	"strings"
	"testing"
	"time"
)

// natRules is what a small router's file says.
const natRules = `nat 1 config if eth0 same_ports reset redirect_port tcp 10.0.5.9:80 8080
add 50 nat 1 ip from any to any via eth0
add 100 allow ip from any to any via eth1
`

// TestNATRules: rules with nat translate for a server behind the host, and let in what they
// redirect, without any setting, without the agent and through its restarts. Without the rule the
// flows end, and what cannot work is refused with what to do.
func TestNATRules(t *testing.T) {
	t.Parallel()
	h := newForwardLab(t)
	h.file("etc/weir/weir.toml", "interfaces = [\"eth*\"]\n")
	rules := h.file("etc/weir/rules", natRules)
	h.start("--rules", rules)
	h.connect(h.server, "tcp", "10.66.0.2:7")
	h.connect(h.outside, "tcp", "10.66.0.1:8080")
	h.exchanged("at the start")
	if out := h.weir("fw", "nat", "show"); out != "nat 1 config if eth0 redirect_port tcp "+
		"10.0.5.9:80 8080\n" {
		t.Errorf("shown as %q", out)
	}
	if out := h.weir("fw", "states"); !strings.Contains(out, "as 10.66.0.1:") {
		t.Errorf("no translated source in\n%s", out)
	}
	h.kill()
	h.exchanged("without the agent")
	h.start("--rules", rules)
	h.exchanged("started again")
	h.connect(h.server, "tcp", "10.66.0.2:7")
	h.exchanged("new ones")
	for line, want := range map[string]string{
		"redirect_port tcp 10.66.0.1:80 81":    "is an address of this host",
		"redirect_addr 10.0.5.9 10.66.0.1":     "is the only address of its interface",
		"redirect_port tcp 10.0.5.9:80 8080 1": "the remote end",
	} {
		args := append([]string{"fw", "nat", "1", "config", "if", "eth0"}, strings.Fields(line)...)
		out, errs, err := h.try(args...)
		if err == nil || !strings.Contains(out+errs, want) {
			t.Errorf("%s: %v: %s%s", line, err, out, errs)
		}
	}
	h.exchanged("after what was refused")
	h.weir("fw", "delete", "50")
	for _, c := range h.open {
		if err := exchange(c, time.Second); err == nil {
			t.Errorf("%s %s continues without the rule", c.RemoteAddr().Network(), c.RemoteAddr())
		}
	}
}
