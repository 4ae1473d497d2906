package test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRemovedHooks: an interface whose hooks another program has removed is guarded again, and the
// log says so.
func TestRemovedHooks(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl", "bpftool")
	p := newPair(t)
	nginx(t, p.server, 80, 81)
	p.start("--iface", "eth0", "--rules", webRules(t))
	p.wantPorts(t, "at first", "80", "81")
	links, err := filepath.Glob(filepath.Join(p.bpffs, "layout-*", "link-*"))
	if err != nil || len(links) != 2 {
		t.Fatalf("pins of links: %v, %v", links, err)
	}
	for _, l := range links {
		p.server.Run("bpftool", "link", "detach", "pinned", l)
	}
	p.server.Run("tc", "qdisc", "add", "dev", "eth0", "clsact") // or it would take ten seconds
	eventually(t, "the interface is guarded again", func() error {
		if !strings.Contains(p.stderr.String(), "another program removed the hooks") {
			return errors.New("the log does not say that hooks were removed")
		}
		if _, err := p.getPort("81", 700*time.Millisecond); err == nil {
			return errors.New("port 81 answers")
		}
		return nil
	})
	p.wantPorts(t, "afterwards", "80", "81")
}
