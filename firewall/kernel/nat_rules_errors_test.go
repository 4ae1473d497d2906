package kernel

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// refuses reports whether an ICMP error answers a datagram.
func (g *gateway) refuses(from *nstest.Node, to string, wait time.Duration) bool {
	g.t.Helper()
	u, err := from.DialContext(context.Background(), "udp4", to)
	g.must(err)
	defer u.Close()
	g.must(u.SetDeadline(time.Now().Add(wait)))
	if _, err = u.Write([]byte("anybody?")); err == nil {
		_, err = u.Read(make([]byte, 10))
	}
	if err == nil || !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, os.ErrDeadlineExceeded) {
		g.t.Errorf("%s: %v", to, err)
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

// TestNATErrors: rules see an ICMP error about a translated flow as it is on the wire. Those that
// refuse inner addresses there refuse none, and it is translated by a rule with nat alone.
func TestNATErrors(t *testing.T) {
	t.Parallel()
	for name, rules := range natRuleFiles {
		t.Run(name, func(t *testing.T) {
			g := newNATRuleGateway(t, rules)
			if !g.refuses(g.server, "192.0.2.2:9", testTimeout) {
				t.Error("no error reaches the server")
			}
		})
	}
	g := newNATRuleGateway(t, "nat 1 config if eth0\nadd 5 allow icmp from any to me in via eth0\n"+
		"add 10 nat 1 ip from any to any via eth0\nadd allow ip from any to any via eth1\n")
	if g.refuses(g.server, "192.0.2.2:9", shortWait) {
		t.Error("an error is translated that a rule without nat let pass")
	}
}
