package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// containerRules allow any address to port 80 of containers labelled app=web, containers and the
// host to the neighbour, and nothing else.
const containerRules = `
add check-state
add allow tcp from any to table(app=web) 80 setup keep-state
add allow tcp from any to 10.66.0.2,fd66::2 80 setup keep-state
add allow udp from any to any 53 keep-state
`

const containerSettings = podSettings + "docker = true\n"

// newRoot makes an empty root file system.
func newRoot(t *testing.T, name string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), name)
	for _, dir := range []string{"bin", "proc", "sys", "dev", "etc", "run", "tmp", "www",
		"var/log/nginx", "var/lib/nginx"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// clientRoot is a root file system with busybox.
func clientRoot(t *testing.T) string {
	t.Helper()
	root := newRoot(t, "client")
	install(t, root, "busybox")
	for _, name := range []string{"wget", "sleep", "timeout"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// serverRoot is a root file system with nginx, which serves ports 80 and 81.
func serverRoot(t *testing.T) string {
	t.Helper()
	root := newRoot(t, "server")
	install(t, root, "nginx")
	for name, text := range map[string]string{
		"etc/passwd":     "root:x:0:0:root:/:/bin/sh\n",
		"etc/group":      "root:x:0:\n",
		"www/index.html": "hello from nginx\n",
		"etc/nginx.conf": `user root; daemon off; worker_processes 1; pid /tmp/pid; error_log stderr; events {}
			http { access_log off; server { listen [::]:80 ipv6only=off; listen [::]:81 ipv6only=off; root /www; } }`,
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// install copies a program and its libraries into a root.
func install(t *testing.T, root, name string) {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	copyFile(t, path, filepath.Join(root, "bin", name))
	libraries, err := exec.Command("ldd", path).Output()
	if err != nil {
		return // static
	}
	for word := range strings.FieldsSeq(string(libraries)) {
		if strings.HasPrefix(word, "/") {
			copyFile(t, word, filepath.Join(root, word))
		}
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o755); err != nil {
		t.Fatal(err)
	}
}

// serveWeb is the command of a web server's container.
var serveWeb = []string{"/bin/nginx", "-e", "stderr", "-c", "/etc/nginx.conf"}

// newContainerHost is newPodHost with a web server on the neighbour and a plugin directory.
func newContainerHost(t *testing.T) (h *podHost, plugins string) {
	t.Helper()
	lab := nstest.New(t)
	h = &podHost{lab: lab, outside: lab.Node("outside"), host: lab.Node("host")}
	lab.Join(h.outside, "eth0", "10.66.0.2/24 fd66::2/64", h.host, "eth0",
		"10.66.0.1/24 fd66::1/64")
	h.outside.Route("10.88.0.0/24", "10.66.0.1")
	h.outside.Route("fd00:88::/120", "fd66::1")
	nginx(t, h.outside, 80, 81)
	h.agentNode = newAgentNode(t, h.host)
	h.file("etc/weir/weir.toml", containerSettings)
	h.start("--rules", h.file("etc/weir/rules", containerRules))
	plugins = filepath.Join(h.root, "cni")
	if err := os.MkdirAll(plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(weir, filepath.Join(plugins, "weir-cni")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/usr/lib/cni/loopback", filepath.Join(plugins, "loopback")); err != nil {
		t.Fatal(err)
	}
	return h, plugins
}

// conflist writes the configuration of a network and returns its directory.
func (h *podHost) conflist(network, version string) string {
	h.t.Helper()
	text := fmt.Sprintf(`{"cniVersion":%q,"name":%q,"plugins":[{"type":"weir-cni","root":%q,"labels":{"app":"web"},
		"capabilities":{"portMappings":true,"ips":true,"mac":true}}]}`, version, network, h.root)
	return filepath.Dir(h.file("net.d/"+network+"/10-weir.conflist", text))
}

// withoutLimits is a runtime for machines that refuse process limits, which podman always asks for.
const withoutLimits = `#!/bin/sh
drop() { jq 'del(.process.rlimits, .rlimits)' "$1" >"$1.tmp" && cat "$1.tmp" >"$1"; }
for a in "$@"; do
	case "$p" in --bundle|-b) drop "$a/config.json";; --process|-p) drop "$a";; esac
	p=$a
done
exec runc "$@"
`

// mustRun runs a command that has to work and returns what it prints.
func mustRun(t *testing.T, cmd *nstest.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return string(out)
}

// meetsTheRules checks what the rules say of a web server's container: inside runs a command in
// another container.
func (h *podHost) meetsTheRules(t *testing.T, inside func(command ...string) (string, error)) {
	t.Helper()
	web := h.pods()[0]
	for _, a := range web.Addrs {
		host := a.String()
		if a.Is6() {
			host = "[" + host + "]"
		}
		awaitServer(t, h.host, "http://"+host+"/")
		reach(t, h.outside, "http://"+host+"/")
		refuse(t, h.outside, "http://"+host+":81/")
		refuse(t, h.host, "http://"+host+":81/")
		if out, err := inside("/bin/timeout", "300", "/bin/wget", "-q", "-O-", "http://"+host+
			"/"); err != nil || !strings.Contains(out, "hello from nginx") {
			t.Errorf("from the other container to %s: %q, %v", host, out, err)
		}
		if out, err := inside("/bin/timeout", "2", "/bin/wget", "-q", "-O-", "http://"+host+
			":81/"); err == nil {
			t.Errorf("from the other container to %s port 81: %q although the rules refuse it",
				host, out)
		}
	}
	for _, remote := range []string{"10.66.0.2", "[fd66::2]"} {
		if out, err := inside("/bin/timeout", "300", "/bin/wget", "-q", "-O-", "http://"+remote+
			"/"); err != nil || !strings.Contains(out, "hello from nginx") {
			t.Errorf("from a container to the neighbour %s: %q, %v", remote, out, err)
		}
		if out, err := inside("/bin/timeout", "2", "/bin/wget", "-q", "-O-", "http://"+remote+
			":81/"); err == nil {
			t.Errorf("from a container to the neighbour %s port 81: %q although the rules refuse "+
				"it", remote, out)
		}
	}
}

// meetsPublishedPorts checks ports 8080 and 8081 of the host, which are the web server's 80 and 81:
// rules see them there.
func (h *podHost) meetsPublishedPorts(t *testing.T,
	inside func(command ...string) (string, error)) {
	t.Helper()
	for _, host := range []string{"10.66.0.1", "[fd66::1]"} {
		reach(t, h.outside, "http://"+host+":8080/")
		reach(t, h.host, "http://"+host+":8080/")
		refuse(t, h.outside, "http://"+host+":8081/")
		if out, err := inside("/bin/timeout", "300", "/bin/wget", "-q", "-O-", "http://"+host+
			":8080/"); err != nil || !strings.Contains(out, "hello from nginx") {
			t.Errorf("from the other container to %s port 8080: %q, %v", host, out, err)
		}
	}
	reach(t, h.host, "http://127.0.0.1:8080/")
}

// meetsByName checks web servers by what a container calls them.
func meetsByName(t *testing.T, inside func(command ...string) (string, error), names ...string) {
	t.Helper()
	for _, name := range names {
		if out, err := inside("/bin/timeout", "300", "/bin/wget", "-q", "-O-", "http://"+name+
			"/"); err != nil || !strings.Contains(out, "hello from nginx") {
			t.Errorf("from a container to %s by name: %q, %v", name, out, err)
		}
	}
}

// meetsNames asks the name server of the pods from a container. It asks for both families, the name
// of an address, and a name of the world, which no resolver of the host knows here. Others get no
// answer.
func (h *podHost) meetsNames(t *testing.T, inside func(command ...string) (string, error)) {
	t.Helper()
	web := h.pods()[0]
	for _, a := range web.Addrs {
		out, err := inside("/bin/busybox", "nslookup", a.String(), "10.88.0.1")
		if err != nil || !strings.Contains(out, "web.weir") {
			t.Errorf("the name of %s: %v\n%s", a, err, out)
		}
	}
	for _, name := range []string{"web.weir", "web.app.label.weir"} {
		names, err := inside("/bin/busybox", "nslookup", name, "fd00:88::1")
		for _, a := range web.Addrs {
			if err != nil || !strings.Contains(names, a.String()) {
				t.Errorf("%s: %s is missing: %v\n%s", name, a, err, names)
			}
		}
	}
	if out, err := inside("/bin/busybox", "nslookup", "none.weir", "10.88.0.1"); err == nil ||
		!strings.Contains(out, "NXDOMAIN") {
		t.Errorf("a name that there is not: %v\n%s", err, out)
	}
	before := h.scrape()
	if out, err := h.outside.Command("timeout", "20", "busybox", "nslookup", "web.weir",
		"10.88.0.1").CombinedOutput(); err == nil {
		t.Errorf("another host is answered: %s", out)
	}
	const refused = `weir_dns_queries_total{result="refused"}`
	if after := h.scrape(); after[refused] == before[refused] {
		t.Errorf("the query of another host is not counted: %v", after[refused])
	}
}

// isEmpty makes sure that the runtime gave everything back.
func (h *podHost) isEmpty(t *testing.T) {
	t.Helper()
	eventually(t, "containers are gone", func() error {
		if left := h.pods(); len(left) != 0 {
			return fmt.Errorf("left: %+v", left)
		}
		return nil
	})
}

func TestLongPodman(t *testing.T) {
	t.Parallel()
	need(t, "podman", "runc", "jq", "nginx", "curl", "busybox")
	h, plugins := newContainerHost(t)
	podman := newPodman(t, h, plugins)
	mustRun(t, podman(append([]string{"run", "-d", "--name", "web", "--network", "pods", "-p",
		"8080:80", "-p", "8081:81", "--rootfs", serverRoot(t)}, serveWeb...)...))
	mustRun(t, podman("run", "-d", "--name", "other", "--network", "pods", "--add-host",
		"neighbour:10.66.0.2", "--rootfs", clientRoot(t), "/bin/sleep", "600"))
	inside := func(command ...string) (string, error) {
		out, err := podman(append([]string{"exec", "other"}, command...)...).Output()
		return string(out), err
	}
	h.meetsTheRules(t, inside)
	h.meetsPublishedPorts(t, inside)
	meetsByName(t, inside, "web", "web.weir", "neighbour")
	h.meetsNames(t, inside)
	mustRun(t, podman("rm", "-af", "-t0"))
	h.isEmpty(t)
}

func TestLongContainerd(t *testing.T) {
	t.Parallel()
	need(t, "containerd", "ctr", "nginx", "curl", "busybox")
	h, _ := newContainerHost(t)
	c := newContainerd(t, h)
	c.start()
	ctr := c.ctr
	c.run("web", serverRoot(t), serveWeb...)
	root := clientRoot(t)
	c.run("other", root, "/bin/sleep", "600")
	count := 0
	h.meetsTheRules(t, func(command ...string) (string, error) {
		count++
		// by way of a file: ctr may lose what a command prints that soon ends
		err := ctr(append([]string{"task", "exec", "--exec-id", fmt.Sprint("e", count), "other",
			"/bin/busybox", "sh", "-c", `exec "$@" >/out`, "sh"}, command...)...).Run()
		out, bad := os.ReadFile(filepath.Join(root, "out"))
		return string(out), errors.Join(err, bad)
	})
	c.end("web", "other")
	h.isEmpty(t)
}

// containerd is one of a host's own, which lends ctr the plugin for its containers' network.
type containerd struct {
	t       *testing.T
	h       *podHost
	program *nstest.Cmd
	socket  string
	config  string
}

// Each is held by the test that uses the places where ctr, or dockerd, looks for Weir.
var placesOfCtr, placesOfDocker sync.Mutex

func newContainerd(t *testing.T, h *podHost) *containerd {
	t.Helper()
	placesOfCtr.Lock()
	t.Cleanup(placesOfCtr.Unlock)
	// ctr knows no other places than these.
	for name, target := range map[string]string{
		"/etc/cni/net.d/05-weir-test.conflist": filepath.Join(h.conflist("weir", "1.0.0"),
			"10-weir.conflist"),
		"/opt/cni/bin/weir-cni": weir, "/opt/cni/bin/loopback": "/usr/lib/cni/loopback",
	} {
		link(t, name, target)
	}
	c := &containerd{t: t, h: h, socket: filepath.Join(h.root, "containerd.sock")}
	c.config = h.file("containerd.toml", fmt.Sprintf("version = 2\nroot = %q\nstate = %q\n"+
		"disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = %q\n",
		filepath.Join(h.root, "cdroot"), filepath.Join(h.root, "cdstate"), c.socket))
	return c
}

func (c *containerd) start() {
	c.t.Helper()
	c.program = c.h.host.Command("containerd", "-c", c.config, "-l", "error")
	background(c.t, c.program)
	eventually(c.t, "containerd answers", func() error { return c.ctr("version").Run() })
}

func (c *containerd) ctr(args ...string) *nstest.Cmd {
	return c.h.host.Command("ctr", append([]string{"-a", c.socket}, args...)...)
}

// run starts a container.
func (c *containerd) run(id, root string, command ...string) {
	c.t.Helper()
	mustRun(c.t, c.ctr(append([]string{"run", "-d", "--cni", "--rootfs", root, id}, command...)...))
	c.t.Cleanup(func() { c.ctr("task", "kill", "-s", "KILL", id).Run() })
}

// end ends containers. ctr run -d leaves the network to the process that ends the container: the
// garbage collection of CNI does that.
func (c *containerd) end(ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		mustRun(c.t, c.ctr("task", "kill", "-s", "KILL", id))
		eventually(c.t, "the container ends", func() error {
			return c.ctr("container", "rm", id).Run()
		})
	}
	c.h.cni("GC", "", "", fmt.Sprintf(
		`{"cniVersion":"1.1.0","name":"weir","type":"weir-cni","root":%q}`, c.h.root))
}

// link makes a symbolic link in a directory of the machine for as long as the test runs, if there
// is no file yet.
func link(t *testing.T, name, target string) {
	t.Helper()
	directory(t, filepath.Dir(name))
	if have, err := os.Readlink(name); err == nil && have == target {
		return
	}
	if err := os.Symlink(target, name); err != nil {
		t.Fatalf("%v; a test needs this place for a moment: remove it if no test runs", err)
	}
	t.Cleanup(func() { os.Remove(name) })
}

// directory makes a directory on the machine, and removes what it made when the test ends.
func directory(t *testing.T, name string) {
	t.Helper()
	if _, err := os.Stat(name); err == nil {
		return
	}
	directory(t, filepath.Dir(name))
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(name) }) // others may have put something there
}

// newDocker starts dockerd on the host, with images of a server and a client, and returns what runs
// a command of docker.
func newDocker(t *testing.T, h *podHost) (docker func(args ...string) *nstest.Cmd) {
	t.Helper()
	placesOfDocker.Lock()
	t.Cleanup(placesOfDocker.Unlock)
	// dockerd finds drivers that do not run below / by a specification.
	link(t, "/etc/docker/plugins/weir.spec", h.file("weir.spec",
		"unix://"+filepath.Join(h.root, "run/docker/plugins/weir.sock")))
	socket := "unix://" + filepath.Join(h.root, "docker.sock")
	background(t, h.host.Command("dockerd", "-l", "error", "-H", socket, "-p",
		filepath.Join(h.root, "docker.pid"), "--data-root", filepath.Join(h.root, "docker"),
		"--exec-root", filepath.Join(h.root, "docker-exec")))
	docker = func(args ...string) *nstest.Cmd {
		return h.host.Command("docker", append([]string{"-H", socket}, args...)...)
	}
	eventually(t, "dockerd answers", func() error { return docker("info").Run() })
	for name, root := range map[string]string{"server": serverRoot(t), "client": clientRoot(t)} {
		mustRun(t, h.host.Command("sh", "-c", fmt.Sprintf(
			"tar -C %s -c . | docker -H %s import - %s", root, socket, name)))
	}
	return docker
}

// showsPorts: docker ps and docker port have no ports for a network of a driver that is not
// Docker's own, as docs/docker.md says. weir pod list has them, and Docker knows what was asked of
// it.
func showsPorts(t *testing.T, h *podHost, docker func(args ...string) *nstest.Cmd) {
	t.Helper()
	if out := mustRun(t, docker("ps", "--format", "{{.Names}} {{.Ports}}", "--filter",
		"name=web")); strings.TrimSpace(out) != "web" {
		t.Errorf("docker ps shows %q: docs/docker.md says that it shows no ports", out)
	}
	if out := mustRun(t, docker("port", "web")); strings.TrimSpace(out) != "" {
		t.Errorf("docker port shows %q: docs/docker.md says that it shows no ports", out)
	}
	if out := mustRun(t, docker("inspect", "-f", "{{.HostConfig.PortBindings}}",
		"web")); !strings.Contains(out, "80/tcp:") || !strings.Contains(out, " 8080}") {
		t.Errorf("docker inspect shows %q", out)
	}
	if out := h.weir("pod", "list"); !strings.Contains(out, "8080:80") {
		t.Errorf("weir pod list shows no published port:\n%s", out)
	}
}

func TestLongDocker(t *testing.T) {
	t.Parallel()
	need(t, "dockerd", "docker", "nginx", "curl", "busybox", "tar")
	h, _ := newContainerHost(t)
	docker := newDocker(t, h)
	mustRun(t, docker("network", "create", "--ipv6", "-d", "weir", "--ipam-driver", "weir", "pods"))
	t.Cleanup(func() { docker("rm", "-f", "web", "other").Run() })
	mustRun(t, docker(append([]string{"run", "-d", "--name", "web", "-p", "8080:80",
		"-p", "8081:81", "--network",
		"name=pods,driver-opt=weir.label.app=web,driver-opt=weir.name=web",
		"server"},
		serveWeb...)...))
	mustRun(t, docker("run", "-d", "--name", "other", "--network", "pods", "--add-host",
		"neighbour:10.66.0.2", "--dns", "10.88.0.1", "client", "/bin/sleep", "600"))
	inside := func(command ...string) (string, error) {
		out, err := docker(append([]string{"exec", "other"}, command...)...).Output()
		return string(out), err
	}
	h.meetsTheRules(t, inside)
	h.meetsPublishedPorts(t, inside)
	showsPorts(t, h, docker)
	// the first by Docker's own name server, which asks ours for others
	meetsByName(t, inside, "web", "web.weir", "web.app.label.weir", "neighbour")
	mustRun(t, docker("rm", "-f", "web", "other"))
	h.isEmpty(t)
	mustRun(t, docker("network", "rm", "pods"))
}
