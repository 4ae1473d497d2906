package test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// startProgram starts a program that runs until the test ends, and returns what it prints.
func startProgram(t *testing.T, cmd *nstest.Cmd) *programOutput {
	t.Helper()
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

// says waits until a program has printed something so many times.
func (p *programOutput) says(t *testing.T, what string, times int) {
	t.Helper()
	eventually(t, what, func() error {
		if n := strings.Count(p.String(), what); n < times {
			return fmt.Errorf("%d of %d times %q:\n%s", n, times, what, p)
		}
		return nil
	})
}

// TestLongDHCPLease: under rules that deny everything a real DHCP client leases its address, and
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
		return startProgram(t, on.Command("busybox", append([]string{name}, args...)...))
	}
	start(server, "udhcpd", "-f", p.file("udhcpd.conf", "start 10.66.0.20\nend 10.66.0.30\n"+
		"interface eth0\nlease_file "+leases+"\noption lease 3600\n"))
	script := p.file("bound", "#!/bin/sh\n[ \"$ip\" ] || exit 0\n"+
		"ip addr replace $ip/24 dev $interface\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	client4 := []string{"-f", "-i", "eth0", "-s", script}
	deny := p.file("rules", "add deny ip from any to any\n")

	p.start("--iface", "eth0", "--rules", deny, "--config", p.file("toml", "dhcp = false\n"))
	none := start(client, "udhcpc", append(client4, "-t", "3", "-T", "1", "-n")...)
	none.says(t, "failing", 1)
	p.stop()
	p.start("--iface", "eth0", "--rules", deny)
	cmd := client.Command("busybox", append([]string{"udhcpc", "-T", "60"}, client4...)...)
	out := startProgram(t, cmd)
	for leased := range 3 {
		out.says(t, "lease of 10.66.0.", leased+1)
		if err := cmd.Process.Signal(syscall.SIGUSR1); err != nil { // renew it
			t.Fatal(err)
		}
	}
	if strings.Count(out.String(), "select") != 1 {
		t.Errorf("the client began again:\n%s", out)
	}
	if client.Command("ping", "-c1", "-W1", "10.66.0.1").Run() == nil {
		t.Error("a rule that denies everything let a ping pass")
	}
}

// TestLongDHCPv6Lease: the same for DHCPv6, whose question goes to a multicast address and whose
// answer comes from another one.
func TestLongDHCPv6Lease(t *testing.T) {
	t.Parallel()
	need(t, "dnsmasq", "dhclient", "ping")
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "fd66::1/64", client, "eth0", "")
	p := newAgentNode(t, client)
	startProgram(t, server.Command("dnsmasq", "-k", "-C", "/dev/null", "-p", "0", "-i", "eth0",
		"--user=root", "--dhcp-range=fd66::100,fd66::1ff,64,2m", "--pid-file=",
		"--dhcp-leasefile="+p.file("server.leases", "")))
	script := p.file("bound", "#!/bin/sh\n[ \"$new_ip6_address\" ] || exit 0\n"+
		"ip -6 addr replace $new_ip6_address/64 dev $interface nodad\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	leases := func(name string) (*nstest.Cmd, *programOutput) {
		t.Helper()
		cmd := client.Command("dhclient", "-6", "-d", "-v", "-sf", script, "-cf", "/dev/null",
			"-lf", p.file(name+".leases", ""), "-pf", p.file(name+".pid", ""), "eth0")
		return cmd, startProgram(t, cmd)
	}
	deny := p.file("rules", "add deny ip from any to any\n")
	p.start("--iface", "eth0", "--rules", deny, "--config", p.file("toml", "dhcp = false\n"))
	first, refused := leases("first")
	refused.says(t, "XMT: Solicit", 2)
	if strings.Contains(refused.String(), "RCV:") {
		t.Errorf("without DHCP an answer came:\n%s", refused)
	}
	first.Process.Kill()
	p.stop()
	p.start("--iface", "eth0", "--rules", deny)
	_, leased := leases("second")
	leased.says(t, "RCV: Reply", 1)
	eventually(t, "the address is there", func() error {
		out, err := client.Command("ip", "-6", "addr", "show", "dev", "eth0").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "inet6 fd66::1") {
			return fmt.Errorf("%v\n%s\n%s", err, out, leased)
		}
		return nil
	})
	if client.Command("ping", "-6", "-c1", "-W1", "fd66::1").Run() == nil {
		t.Error("a rule that denies everything let a ping pass")
	}
}
