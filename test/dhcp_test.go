package test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestLongDHCPLease: under rules that deny everything a real DHCP client rents its address, and
// renews it, which it asks of the server alone; with `dhcp = false` it gets none.
func TestLongDHCPLease(t *testing.T) {
	t.Parallel()
	need(t, "busybox", "ping")
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "10.66.0.1/24", client, "eth0", "")
	p := newAgentNode(t, client)
	leases := p.file("leases", "")
	start := func(on *nstest.Node, name string, args ...string) *programOutput {
		t.Helper()
		cmd := on.Command("busybox", append([]string{name}, args...)...)
		out := &programOutput{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		return out
	}
	start(server, "udhcpd", "-f", p.file("udhcpd.conf", "start 10.66.0.20\nend 10.66.0.30\n"+
		"interface eth0\nlease_file "+leases+"\nmin_lease 4\noption lease 4\n"))
	script := p.file("bound", "#!/bin/sh\n[ \"$ip\" ] || exit 0\n"+
		"ip addr replace $ip/24 dev $interface\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	client4 := []string{"-f", "-i", "eth0", "-s", script, "-t", "3", "-T", "1", "-A", "1"}
	deny := p.file("rules", "add deny ip from any to any\n")

	var out *programOutput
	await := func(what string, times int) {
		t.Helper()
		eventually(t, what, func() error {
			if n := strings.Count(out.String(), what); n < times {
				return fmt.Errorf("%d of %d times %q:\n%s", n, times, what, out)
			}
			return nil
		})
	}
	p.start("--iface", "eth0", "--rules", deny, "--config", p.file("toml", "dhcp = false\n"))
	out = start(client, "udhcpc", append(client4, "-n")...)
	await("failing", 1)
	p.stop()
	p.start("--iface", "eth0", "--rules", deny)
	out = start(client, "udhcpc", client4...)
	await("lease of 10.66.0.", 3)
	if strings.Count(out.String(), "select") != 1 {
		t.Errorf("the client began again:\n%s", out)
	}
	if client.Command("ping", "-c1", "-W1", "10.66.0.1").Run() == nil {
		t.Error("a rule that denies everything let a ping pass")
	}
}
