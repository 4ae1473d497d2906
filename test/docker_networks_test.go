package test

import (
	"fmt"
	"strings"
	"testing"
)

// TestLongDockerNetworks: what docs/docker.md says about networks of Docker with the driver weir.
// --internal is refused, and a running container can be connected and disconnected. All such
// networks have the same containers, which the rules keep apart.
func TestLongDockerNetworks(t *testing.T) {
	t.Parallel()
	need(t, "dockerd", "docker", "nginx", "curl", "busybox", "tar")
	h, _ := newContainerHost(t)
	docker := newDocker(t, h)
	create := func(args ...string) (string, error) {
		out, err := docker(append([]string{"network", "create", "-d", "weir", "--ipam-driver",
			"weir"}, args...)...).CombinedOutput()
		return string(out), err
	}
	if out, err := create("--internal", "closed"); err == nil ||
		!strings.Contains(out, "--internal is not supported") {
		t.Errorf("docker network create --internal: %v: %s", err, out)
	}
	for _, name := range []string{"pods", "beside"} {
		if out, err := create(name); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	t.Cleanup(func() { docker("rm", "-f", "web", "client").Run() })
	mustRun(t, docker(append([]string{"run", "-d", "--name", "web", "--network",
		"name=beside,driver-opt=weir.label.app=web,driver-opt=weir.name=web", "server"},
		serveWeb...)...))
	mustRun(t, docker("run", "-d", "--name", "client", "--add-host",
		"host.docker.internal:host-gateway", "client", "/bin/sleep", "600"))
	mustRun(t, docker("network", "connect", "--driver-opt", "weir.name=late", "pods", "client"))
	fetch := func(host string) error {
		out, err := docker("exec", "client", "/bin/wget", "-q", "-O-",
			"http://"+host+"/").CombinedOutput()
		if err == nil && string(out) != "hello from nginx\n" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	}
	late, web := h.pod("late").Addrs[0], h.pod("web").Addrs[0]
	// The rules see the address of the network, not that of Docker's bridge.
	h.weir("fw", "load", h.file("late.rules", fmt.Sprintf(`
add check-state
add allow tcp from %v to table(app=web) 80 in via pod:late setup keep-state
add allow tcp from %v to table(app=web) 80 out via pod:web setup keep-state
add allow tcp from any to me 80 setup keep-state
`, late, late)))
	eventually(t, "a container that was connected reaches the server", func() error {
		return fetch(web.String())
	})
	nginx(t, h.host, 80)
	if err := fetch("host.docker.internal"); err != nil {
		t.Errorf("the host: %v", err)
	}
	// dockerd asks for a range without routes again and again
	if out, err := create("third"); err == nil || !strings.Contains(out,
		"--subnet 10.88.0.0/24") {
		t.Errorf("a network while there are pods: %v: %s", err, out)
	}
	if out, err := create("--subnet", "10.88.0.0/24", "third"); err != nil {
		t.Errorf("a network while there are pods, with --subnet: %v: %s", err, out)
	}
	mustRun(t, docker("network", "disconnect", "pods", "client"))
	for _, p := range h.pods() {
		if p.Name == "late" {
			t.Errorf("after docker network disconnect there is %+v", p)
		}
	}
	h.weir("fw", "load", h.file("pass.rules", "add allow ip from any to any\n"))
	if err := fetch(web.String()); err != nil {
		t.Errorf("after docker network disconnect: %v", err)
	}
}
