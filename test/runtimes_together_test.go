package test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// webServer is a web server's container and what runs a command in the client beside it.
type webServer struct {
	runtime, address, port string // of the host, "" for none
	inside                 func(command ...string) *nstest.Cmd
}

// TestLongRuntimes: podman, containerd and Docker run containers of Weir's network on one
// host, beside containers of Docker's own bridge, with published ports of each runtime that has
// them. Every client reaches every server where the rules say, and nothing else, also while the
// agent is away and after it has come back.
func TestLongRuntimes(t *testing.T) {
	need(t, "podman", "runc", "jq", "containerd", "ctr", "dockerd", "docker", "nginx", "curl",
		"busybox", "tar", "iptables")
	h, plugins := newContainerHost(t)
	rules := h.file("together.rules", containerRules+`
add allow tcp from any to me 9080 in setup keep-state
add allow tcp from table(app=web) to 172.16.0.0/12 80 in setup keep-state
add allow tcp from table(app=client) to 172.16.0.0/12 80 in setup keep-state
`)
	h.weir("fw", "load", rules)
	docker := newDocker(t, h)
	// dockerd does this where it is the first to have the host forward
	mustRun(t, h.host.Command("iptables", "-P", "FORWARD", "DROP"))
	all := append(runDocker(t, h, docker), runPodman(t, h, plugins))
	c := newContainerd(t, h)
	all = append(all, runContainerd(t, h, c))

	h.meet(t, all)
	h.kill()
	h.meet(t, all)
	h.start("--rules", rules)
	h.meet(t, all)

	mustRun(t, docker("rm", "-f", "docker-web", "docker-client", "docker-four"))
	mustRun(t, all[3].inside("/bin/busybox", "true")) // podman's is not touched
	c.end("containerd-web", "containerd-client")
	if out := h.weir("pod", "list"); strings.Contains(out, "docker-") ||
		strings.Contains(out, "containerd-") {
		t.Errorf("after their end there are\n%s", out)
	}
	reach(t, h.outside, "http://10.66.0.1:9080/")
	var s struct{ Healthy bool }
	if h.json(&s, "status", "-j"); !s.Healthy {
		t.Errorf("after all the node is not healthy:\n%s", h.weir("status"))
	}
}

// runDocker runs servers and clients on a network of Weir and on Docker's own bridge.
func runDocker(t *testing.T, h *podHost, docker func(...string) *nstest.Cmd) []webServer {
	t.Helper()
	mustRun(t, docker("network", "create", "--ipv6", "-d", "weir", "--ipam-driver", "weir", "pods"))
	mustRun(t, docker("network", "create", "-d", "weir", "--ipam-driver", "weir", "four"))
	t.Cleanup(func() {
		docker("rm", "-f", "docker-web", "docker-client", "docker-four", "bridge-web",
			"bridge-client").Run()
	})
	const label = ",driver-opt=weir.label.app="
	for _, args := range [][]string{
		append([]string{"docker-web", "-p", "8080:80", "-p", "8081:81", "--network",
			"name=pods,driver-opt=weir.name=docker-web" + label + "web", "server"}, serveWeb...),
		{"docker-client", "--network", "name=pods,driver-opt=weir.name=docker-client" + label +
			"client", "client", "/bin/sleep", "600"},
		append([]string{"docker-four", "-p", "8280:80", "-p", "8281:81", "--network",
			"name=four,driver-opt=weir.name=docker-four" + label + "web", "server"}, serveWeb...),
		append([]string{"bridge-web", "-p", "9080:80", "-p", "9081:81", "server"}, serveWeb...),
		{"bridge-client", "client", "/bin/sleep", "600"},
	} {
		mustRun(t, docker(append([]string{"run", "-d", "--name"}, args...)...))
	}
	in := func(name string) func(command ...string) *nstest.Cmd {
		return func(command ...string) *nstest.Cmd {
			return docker(append([]string{"exec", name}, command...)...)
		}
	}
	bridge := strings.TrimSpace(mustRun(t, docker("inspect", "-f",
		"{{.NetworkSettings.IPAddress}}", "bridge-web")))
	four := h.pod("docker-four")
	if len(four.Addrs) != 1 || !four.Addrs[0].Is4() {
		t.Errorf("a container of a network without IPv6 has %v", four.Addrs)
	}
	return []webServer{
		{"Docker", h.pod("docker-web").Addrs[0].String(), "8080", in("docker-client")},
		{"Docker without IPv6", four.Addrs[0].String(), "8280", in("docker-client")},
		{"Docker's bridge", bridge, "9080", in("bridge-client")},
	}
}

func runPodman(t *testing.T, h *podHost, plugins string) webServer {
	t.Helper()
	podman := newPodman(t, h, plugins)
	mustRun(t, podman(append([]string{"run", "-d", "--name", "podman-web", "--network", "pods",
		"-p", "8180:80", "-p", "8181:81", "--rootfs", serverRoot(t)}, serveWeb...)...))
	mustRun(t, podman("run", "-d", "--name", "podman-client", "--network", "pods", "--rootfs",
		clientRoot(t), "/bin/sleep", "600"))
	return webServer{"podman", h.pod("podman-web").Addrs[0].String(), "8180",
		func(command ...string) *nstest.Cmd {
			return podman(append([]string{"exec", "podman-client"}, command...)...)
		}}
}

func runContainerd(t *testing.T, h *podHost, c *containerd) webServer {
	t.Helper()
	c.start()
	c.run("containerd-web", serverRoot(t), serveWeb...)
	c.run("containerd-client", clientRoot(t), "/bin/sleep", "600")
	count := 0
	return webServer{"containerd", h.pod("default-containerd-web").Addrs[0].String(), "",
		func(command ...string) *nstest.Cmd {
			count++
			return c.ctr(append([]string{"task", "exec", "--exec-id", fmt.Sprint("e", count),
				"containerd-client"}, command...)...)
		}}
}

// meet makes sure that the neighbour, the host and every client reach every server's port 80 and
// published port, and not its port 81.
func (h *podHost) meet(t *testing.T, all []webServer) {
	t.Helper()
	for _, to := range all {
		awaitServer(t, h.host, "http://"+to.address+"/")
		targets := map[string]bool{to.address: true, to.address + ":81": false}
		if to.port != "" {
			port := "10.66.0.1:" + to.port
			reach(t, h.outside, "http://"+port+"/")
			reach(t, h.host, "http://"+port+"/")
			refuse(t, h.outside, "http://"+strings.TrimSuffix(port, "0")+"1/")
			targets[port] = true
		}
		for _, from := range all {
			if from.runtime == "Docker's bridge" && to.runtime == from.runtime {
				continue // Docker's own affair
			}
			for target, allowed := range targets {
				if from.runtime == "Docker's bridge" && strings.HasPrefix(target, "10.66.0.1:") {
					continue // its interface has no hooks
				}
				timeout := "300"
				if !allowed {
					timeout = "2"
				}
				// Compared inside: ctr may lose what a command prints that soon ends.
				out, err := from.inside("/bin/busybox", "sh", "-c", `test "$(/bin/timeout `+
					timeout+` /bin/wget -q -O- http://`+target+`/)" = "hello from nginx"`,
				).CombinedOutput()
				if got := err == nil; got != allowed {
					t.Errorf("a client of %s calls the server of %s at %s: %v, %v: %s",
						from.runtime, to.runtime, target, got, err, out)
				}
			}
		}
	}
}
