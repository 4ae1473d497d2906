package test

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// TestPinsGone: the pins are not where they were, as when their bpf file system was unmounted or
// another one mounted over it. Interfaces that come are guarded, and no pod is attached that would
// lose its guard with the agent. The status tells it until the pins are back.
func TestPinsGone(t *testing.T) {
	t.Parallel()
	p := newPodHostWith(t, strings.Replace(podSettings, "eth0", "eth*", 1), "add check-state\n"+
		"add allow tcp from any to me 80 setup keep-state\n")
	l, err := p.host.Listen("tcp", ":81")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	away := p.bpffs + "-away"
	if err := os.Rename(p.bpffs, away); err != nil {
		t.Fatal(err)
	}
	p.lab.Join(p.host, "eth1", "10.67.0.1/24", p.outside, "eth1", "10.67.0.2/24")
	eventually(t, "the new interface is attached", func() error {
		if out := p.stderr.String(); !strings.Contains(out, "guarding interface=eth1") {
			return fmt.Errorf("the log is %s", out)
		}
		return nil
	})
	err = p.outside.Do(func() error {
		c, err := net.DialTimeout("tcp", "10.67.0.1:81", time.Second)
		if err == nil {
			c.Close()
			t.Error("port 81 answers at an interface without pins")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	pod := p.lab.Node("pod")
	if _, stderr, err := p.try("pod", "attach", pod.Path()); err == nil ||
		!strings.Contains(stderr, "cannot be pinned") {
		t.Errorf("attach of a pod: %v, %s", err, stderr)
	}
	p.host.Run("tc", "qdisc", "add", "dev", "eth0", "clsact") // or it would take ten seconds
	eventually(t, "the status reports both", func() error {
		out, _, err := p.try("status")
		if err == nil || !strings.Contains(out, "eth1 is guarded only until the agent ends") ||
			!strings.Contains(out, "the next agent will not find") {
			return fmt.Errorf("%v, %s", err, out)
		}
		return nil
	})
	if err := os.Rename(away, p.bpffs); err != nil {
		t.Fatal(err)
	}
	p.weir("status", "--wait", testTimeout.String())
}
