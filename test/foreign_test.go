package test

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// TestInterfacesOfOtherPrograms: rules that deny everything leave Docker's bridge and its
// containers alone, the status says so, and a setting that names them ends it.
//
//	container eth0 ---- veth5aa8d22 (docker0) host eth0 ---- eth0 client
func TestInterfacesOfOtherPrograms(t *testing.T) {
	t.Parallel()
	need(t, "ip", "ping")
	lab := nstest.New(t)
	host, client, container := lab.Node("host"), lab.Node("client"), lab.Node("container")
	lab.Join(host, "eth0", "10.66.0.1/24", client, "eth0", "10.66.0.2/24")
	lab.Join(host, "veth5aa8d22", "", container, "eth0", "172.17.0.2/16")
	for _, line := range []string{"link add docker0 type bridge",
		"link set veth5aa8d22 master docker0", "addr add 172.17.0.1/16 dev docker0",
		"link set docker0 up"} {
		host.IP(line)
	}
	p := newAgentNode(t, host)
	deny := p.file("rules", "add deny ip from any to any\n")
	p.start("--rules", deny)
	if err := ping(container, "172.17.0.1"); err != nil {
		t.Error(err)
	}
	if client.Command("ping", "-c1", "-W1", "10.66.0.1").Run() == nil {
		t.Error("eth0 is not guarded")
	}
	var s api.Status
	p.json(&s, "status")
	if len(s.Interfaces) != 1 || s.Interfaces[0].Name != "eth0" || len(s.Skipped) != 2 ||
		!s.Healthy {
		t.Errorf("guarded %v, skipped %v, problems %v", s.Interfaces, s.Skipped, s.Problems)
	}
	if text := p.weir("status"); !strings.Contains(text,
		"not guarded, made for containers: veth5aa8d22 (a container), docker0 (Docker)\n") {
		t.Error(text)
	}
	p.stop()
	p.start("--rules", deny, "--iface", "*", "--iface", "docker*")
	if container.Command("ping", "-c1", "-W1", "172.17.0.1").Run() == nil {
		t.Error("docker0, which was named, is not guarded")
	}
	s = api.Status{}
	p.json(&s, "status")
	if len(s.Interfaces) != 2 || len(s.Skipped) != 1 {
		t.Errorf("guarded %v, skipped %v", s.Interfaces, s.Skipped)
	}
}
