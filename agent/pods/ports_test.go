package pods

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

func TestMasqueradePorts(t *testing.T) {
	for _, c := range []struct{ setting, ephemeral, want string }{
		{"", "32768\t60999\n", "1024-32767,60999-65535"},
		{"", "49152\t65535\n", "1024-49151"},
		{"", "100\t5000\n", "5001-65535"},
		{"", "1024\t65535\n", "1024-65535"}, // nothing would be left
		{"", "1\t1000\n", "1024-65535"},
		{"", "what", "1024-65535"},
		{"61000-65535", "32768\t60999\n", "61000-65535"},
		{"5000-6000, 2000", "32768\t60999\n", "2000-2000,5000-6000"},
	} {
		c.want = strings.ReplaceAll(c.want, "60999-", "61000-")
		var s Settings
		if c.setting != "" {
			var err error
			if s.MasqueradePorts, err = parsePorts(c.setting); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, r := range masqueradePorts(&s, c.ephemeral) {
			got = append(got, fmt.Sprintf("%d-%d", r.First, r.Last))
		}
		if strings.Join(got, ",") != c.want {
			t.Errorf("%q with %q: %s, not %s", c.setting, c.ephemeral, got, c.want)
		}
	}
	for _, bad := range []string{"0-5", "5-4", "a", "1-70000", "1-5,5-6", "-",
		"1,2,3,4,5,6,7,8,9"} {
		if got, err := parsePorts(bad); err == nil {
			t.Errorf("%q gave %v", bad, got)
		}
	}
	if got, err := parsePorts("65535"); err != nil ||
		!slices.Equal(got, []forward.PortRange{{First: 65535, Last: 65535}}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestPublishedPortsOfTheHost: a pod does not get a port at which the host listens, nor that of the
// tunnel.
func TestPublishedPortsOfTheHost(t *testing.T) {
	// of its own: on the machine other tests listen at ports that they get
	host := nstest.New(t).Node("host")
	if err := host.Do(func() error { portsOfTheHost(t); return nil }); err != nil {
		t.Fatal(err)
	}
}

func portsOfTheHost(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	every, err := net.Listen("tcp", "[::]:0") // and for IPv4
	if err != nil {
		t.Fatal(err)
	}
	defer every.Close()
	all := uint16(every.Addr().(*net.TCPAddr).Port)
	busy, heard := uint16(l.Addr().(*net.TCPAddr).Port), uint16(u.LocalAddr().(*net.UDPAddr).Port)
	const free = 20000 // not one that the kernel gives out
	p := New(Config{TunnelPort: func() uint16 { return 51820 }})
	other, loopback := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("127.0.0.1")
	for _, c := range []struct {
		pub  pod.Publish
		want string // part of the refusal, "" for none
	}{
		{pod.Publish{Proto: packet.ProtoTCP, HostPort: busy, Port: 80},
			"is used by the host itself, at 127.0.0.1 (pods.test, process"},
		{pod.Publish{Proto: packet.ProtoTCP, Host: loopback, HostPort: busy, Port: 80},
			"is used by the host itself"},
		{pod.Publish{Proto: packet.ProtoTCP, Host: netip.MustParseAddr("::ffff:127.0.0.1"),
			HostPort: busy, Port: 80}, "is used by the host itself"},
		{pod.Publish{Proto: packet.ProtoTCP, Host: netip.IPv4Unspecified(), HostPort: busy,
			Port: 80}, "is used by the host itself"},
		{pod.Publish{Proto: packet.ProtoTCP, Host: other, HostPort: busy, Port: 80}, ""},
		{pod.Publish{Proto: packet.ProtoTCP, Host: netip.IPv6Unspecified(), HostPort: busy,
			Port: 80}, ""},
		{pod.Publish{Proto: packet.ProtoTCP, Host: other, HostPort: all, Port: 80},
			"is used by the host itself, at ::"},
		{pod.Publish{Proto: packet.ProtoTCP, Host: netip.IPv4Unspecified(), HostPort: all,
			Port: 80}, "is used by the host itself, at ::"},
		{pod.Publish{Proto: packet.ProtoUDP, HostPort: heard, Port: 80}, "udp port"},
		{pod.Publish{Proto: packet.ProtoTCP, HostPort: free, Port: 80}, ""},
		{pod.Publish{Proto: packet.ProtoUDP, HostPort: 51820, Port: 51820}, "that of the tunnel"},
		{pod.Publish{Proto: packet.ProtoTCP, HostPort: 51820, Port: 51820}, ""},
	} {
		err := p.checkPublished(t.Context(), &pod.Spec{Name: "web", Publish: []pod.Publish{c.pub}})
		if c.want == "" && err != nil || c.want != "" &&
			(err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v", c.pub, err)
		}
	}
}

// TestPortsThatPodmanHolds: podman listens at the ports of a container while it starts it, and what
// it started asks for them. Others do not get them, and neither does one that podman did not start.
func TestPortsThatPodmanHolds(t *testing.T) {
	const comm = "/proc/self/comm"
	before, err := os.ReadFile(comm)
	if err != nil {
		t.Fatal(err)
	}
	rename := func(name string) {
		t.Helper()
		if err := os.WriteFile(comm, []byte(name), 0); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { rename(strings.TrimSpace(string(before))) })
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	child := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { syscall.Kill(-child.Process.Pid, syscall.SIGKILL); child.Wait() }()
	var grandchild int
	if _, err := fmt.Fscan(out, &grandchild); err != nil {
		t.Fatal(err)
	}
	spec := &pod.Spec{Name: "web", Publish: []pod.Publish{{Proto: packet.ProtoTCP, Port: 80,
		HostPort: uint16(l.Addr().(*net.TCPAddr).Port)}}}
	p := New(Config{TunnelPort: func() uint16 { return 0 }})
	for _, c := range []struct {
		holder string
		client int
		free   bool
	}{
		{"podman", grandchild, true},
		{"podman", child.Process.Pid, true},
		{"podman", os.Getppid(), false},
		{"podman", 1, false},
		{"podman", 0, false},
		{"conmon", os.Getppid(), true},
		{"sshd", grandchild, false},
	} {
		rename(c.holder)
		ctx := WithClientPID(t.Context(), c.client)
		if err := p.checkPublished(ctx, spec); (err == nil) != c.free {
			t.Errorf("%s holds the port, process %d asks: %v", c.holder, c.client, err)
		}
	}
}
