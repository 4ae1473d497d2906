package test

import (
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
		!strings.Contains(out, "--internal: the rules of the host decide") {
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
	late := h.pod("late")
	web := h.pod("web")
	t.Logf("%+v %+v", late, web)
	out, err := docker("exec", "client", "/bin/busybox", "ip", "route").CombinedOutput()
	t.Logf("%v %s", err, out)
	out, err = docker("exec", "client", "/bin/busybox", "ip", "addr").CombinedOutput()
	t.Logf("%v %s", err, out)
	out, err = docker("exec", "client", "/bin/busybox", "cat", "/etc/hosts").CombinedOutput()
	t.Logf("%v %s", err, out)
	fetch := func() (string, error) {
		out, err := docker("exec", "client", "/bin/timeout", "5", "/bin/wget", "-q", "-O-",
			"http://"+web.Addrs[0].String()+"/").CombinedOutput()
		return string(out), err
	}
	if out, err := fetch(); err != nil || !strings.Contains(out, "hello from nginx") {
		t.Errorf("a container that was connected: %v: %s", err, out)
	}
	mustRun(t, docker("network", "disconnect", "pods", "client"))
	for _, p := range h.pods() {
		if p.Name == "late" {
			t.Errorf("after docker network disconnect there is %+v", p)
		}
	}
	out, err = docker("exec", "client", "/bin/busybox", "ip", "route").CombinedOutput()
	t.Logf("%v %s", err, out)
	out2, err := create("third")
	out, err = docker("network", "connect", "beside", "client").CombinedOutput()
	out, err = docker("network", "connect", "third", "client").CombinedOutput()
	t.Logf("third %v %s %v", err, out, out2)
	out, err = docker("exec", "client", "/bin/busybox", "ip", "route").CombinedOutput()
	t.Logf("%v %s", err, out)
}
