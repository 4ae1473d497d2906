package test

import (
	"encoding/json"
	"net/netip"
	"testing"

	"github.com/weirnet/weir/agent/api"
)

// TestLongDockerPublishes: dockerd publishes a port for both families, or for IPv4 alone if the
// command says 0.0.0.0.
func TestLongDockerPublishes(t *testing.T) {
	need(t, "dockerd", "docker", "nginx", "curl", "busybox", "tar")
	h, _ := newContainerHost(t)
	docker := newDocker(t, h)
	mustRun(t, docker("network", "create", "--ipv6", "-d", "weir", "--ipam-driver", "weir", "pods"))
	t.Cleanup(func() { docker("rm", "-f", "web").Run() })
	mustRun(t, docker(append([]string{"run", "-d", "--name", "web", "--network", "pods", "-p",
		"8080:80", "-p", "0.0.0.0:8081:80", "server"}, serveWeb...)...))
	var pods api.Pods
	if err := json.Unmarshal([]byte(h.weir("pod", "list", "-j")), &pods); err != nil {
		t.Fatal(err)
	}
	if len(pods.Pods) != 1 || len(pods.Pods[0].Publish) != 2 {
		t.Fatalf("pods %+v", pods)
	}
	for _, p := range pods.Pods[0].Publish {
		want := map[uint16]netip.Addr{8080: {}, 8081: netip.IPv4Unspecified()}[p.HostPort]
		if p.Host != want {
			t.Errorf("port %d is published on %v, want %v", p.HostPort, p.Host, want)
		}
	}
}
