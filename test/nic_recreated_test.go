package test

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// remake makes the server's network card again, with the index that it had.
func (p *pair) remake(t *testing.T) {
	t.Helper()
	index := 0
	if err := p.server.Do(func() error {
		i, err := net.InterfaceByName("eth0")
		if err == nil {
			index = i.Index
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, args := range []string{
		"link del eth0", fmt.Sprintf("link add eth0 index %d type veth peer name eth0 netns %s",
			index, p.client.Path()),
		"addr add 10.66.0.1/24 dev eth0", "link set eth0 up",
	} {
		p.server.IP(args)
	}
	for _, args := range []string{"addr add 10.66.0.2/24 dev eth0", "link set eth0 up"} {
		p.client.IP(args)
	}
}

// TestNICRecreated: a network card that is deleted and made again with the same index is guarded
// again, also when the agent gets both events at once. The next start names one that came while no
// agent ran.
func TestNICRecreated(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80, 81)
	rules := p.file("rules", "add check-state\nadd allow tcp from any to me 80 setup keep-state\n")
	p.start("--iface", "eth0", "--rules", rules)
	p.agent.Process.Signal(syscall.SIGSTOP)
	p.remake(t)
	p.wantPorts(t, "the new card has no rules, or this test could not fail", "80 81", "")
	p.agent.Process.Signal(syscall.SIGCONT)
	eventually(t, "the new card is guarded", func() error {
		if _, err := p.getPort("81", 700*time.Millisecond); err == nil {
			return errors.New("port 81 answers")
		}
		return nil
	})
	p.wantPorts(t, "with a new card", "80", "81")
	p.kill()
	p.remake(t)
	p.start("--iface", "eth0", "--rules", rules)
	p.wantPorts(t, "after the start", "80", "81")
	if !strings.Contains(p.stderr.String(), "the interface was created while no agent ran") ||
		!strings.Contains(p.stderr.String(), "interface=eth0") {
		t.Errorf("the start does not name the card:\n%s", p.stderr)
	}
}
