package test

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestLogIsJSON: with log = "json" all that the agent writes is JSON, the ready line too, and a
// change has the user who made it.
func TestLogIsJSON(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--config", p.file("etc/weir/weir.toml", "log = \"json\"\n"), "--iface", "eth0")
	p.weir("fw", "add", "100", "allow", "ip", "from", "any", "to", "any")
	p.stop()
	ready, changed := false, false
	for line := range strings.Lines(p.stderr.String()) {
		var l struct {
			Msg string `json:"msg"`
			UID *int   `json:"uid"`
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Errorf("%v: %s", err, line)
		}
		ready = ready || strings.HasPrefix(l.Msg, "ready: guards eth0")
		changed = changed || l.Msg == "rules changed" && l.UID != nil && *l.UID == 0
	}
	if !ready || !changed {
		t.Errorf("ready %v, changed by root %v:\n%s", ready, changed, p.stderr)
	}
}
