package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// podman5 is a booted machine of Debian 13 with its podman, conmon, crun and netavark, the package
// of this tree, and an image called nginx. A neighbour calls it.
type podman5 struct {
	*machine
	server, outside *nstest.Node
}

// podmanSettings leave out what this kernel has no controllers of control groups for.
const podmanSettings = `mkdir -p /etc/containers /etc/weir /var/lib/containers
mount -t tmpfs none /var/lib/containers # an overlay over an overlay is none
printf '[containers]\npids_limit = 0\n[engine]\nevents_logger = "none"\n' >/etc/containers/containers.conf
podman import -c 'CMD ["/bin/nginx", "-e", "stderr", "-c", "/etc/nginx.conf"]' /srv/nginx.tar nginx
dpkg --no-triggers -i /srv/weir_*.deb
cp /srv/rules /etc/weir/rules
cp /srv/weir.toml /etc/weir/weir.toml
systemctl enable --now weir
podman network create -d weir -o label.app=web pods
podman network create -d weir clients`

func newPodman5(t *testing.T) *podman5 {
	t.Helper()
	root, err := exec.Command("../scripts/release-root", "trixie").Output()
	if err != nil {
		t.Fatalf("a root file system of Debian 13: %v", err)
	}
	lab := nstest.New(t)
	p := &podman5{server: lab.Node("server"), outside: lab.Node("outside")}
	lab.Join(p.outside, "eth0", "10.66.0.2/24 fd66::2/64", p.server, "eth0",
		"10.66.0.1/24 fd66::1/64")
	p.outside.Route("10.88.0.0/24", "10.66.0.1")
	p.outside.Route("fd00:88::/120", "fd66::1")
	nginx(t, p.outside, 80, 81)
	deb, _ := ownPackages(t)
	image := serverRoot(t)
	install(t, image, "busybox")
	dir := t.TempDir()
	tar := filepath.Join(dir, "nginx.tar")
	if out, err := exec.Command("tar", "-C", image, "-cf", tar, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := []string{deb, tar}
	for name, text := range map[string]string{"rules": containerRules, "weir.toml": podSettings,
		"kube.yaml": kubeFile, "compose.yaml": composeFile} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	p.machine = bootRelease(t, p.server, strings.TrimSpace(string(root)), files...)
	t.Cleanup(func() { p.try("podman", "rm", "-af", "-t0") })
	p.run("sh", "-ec", podmanSettings)
	return p
}

// start runs a container of nginx, or of another command.
func (p *podman5) start(args ...string) {
	p.t.Helper()
	p.run(append([]string{"podman", "run", "-d"}, args...)...)
}

// inside asks for a URL in a container, for so many seconds at most.
func (p *podman5) inside(container, url, most string) (string, error) {
	return p.try("podman", "exec", container, "/bin/busybox", "timeout", most, "/bin/busybox",
		"wget", "-q", "-O-", "http://"+url+"/")
}

// reaches makes sure that the rules let a container through, and refuse it at the other port.
func (p *podman5) reaches(container, host string) {
	p.t.Helper()
	eventually(p.t, container+" reaches "+host, func() error {
		out, err := p.inside(container, host, "300")
		if err == nil && out != "hello from nginx" {
			err = errors.New("another answer")
		}
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		return err
	})
	if out, err := p.inside(container, host+":81", "5"); err == nil {
		p.t.Errorf("from %s to %s port 81: %q although the rules refuse it", container, host, out)
	}
}

// published checks the web server that has port 8080 of the machine, and port 8081 for what the
// rules refuse.
func (p *podman5) published() {
	p.t.Helper()
	awaitServer(p.t, p.outside, "http://10.66.0.1:8080/")
	for _, host := range []string{"10.66.0.1", "[fd66::1]"} {
		reach(p.t, p.outside, "http://"+host+":8080/")
		reach(p.t, p.server, "http://"+host+":8080/")
		refuse(p.t, p.outside, "http://"+host+":8081/")
	}
	reach(p.t, p.server, "http://127.0.0.1:8080/")
}

// gone makes sure that no container is left, and nothing of one.
func (p *podman5) gone(when string) {
	p.t.Helper()
	eventually(p.t, when+" nothing is left", func() error {
		left, err := p.try("sh", "-c",
			`weir pod list -j | grep '"name"'; ip -o link | grep 'weir[0-9a-f]*[@:]'; ip netns; true`)
		if err == nil && left != "" {
			err = errors.New(left)
		}
		return err
	})
}

// TestLongPodman5: podman 5 of Debian 13 runs containers on networks of the plugin that the package
// installs. They meet the rules, and have names, labels and published ports. They may have several
// networks, come again under their name at once, and leave nothing.
func TestLongPodman5(t *testing.T) {
	t.Parallel()
	need(t, "debootstrap", "dpkg-deb", "unshare", "systemd-nspawn", "nginx", "curl", "tar",
		"busybox")
	p := newPodman5(t)
	p.refusedNetworks()
	p.start("--name", "web", "--network", "pods", "-p", "8080:80", "-p", "8081:81", "nginx")
	p.start("--name", "other", "--network", "clients:label.tier=1", "--add-host",
		"neighbour:10.66.0.2", "nginx", "/bin/busybox", "sleep", "600")
	for _, host := range []string{"web", "web.weir", "web.app.label.weir", "neighbour",
		"[fd66::2]"} {
		p.reaches("other", host)
	}
	p.published()
	p.labels()
	p.again()
	p.severalNetworks()
	p.run("podman", "rm", "-af", "-t0")
	p.gone("after podman rm")
	p.kube()
	p.compose()
	p.run("podman", "network", "rm", "pods", "clients")
	if out := p.run("weir", "status"); !strings.HasPrefix(out, "healthy") {
		t.Errorf("after all the node is %s", out)
	}
}
