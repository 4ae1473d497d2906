package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestLongDockerPage does what docs/docker.md says on a machine with systemd, and asks from another
// one what answers. Only two things are done beforehand: the image is there, which no registry
// gives here, and dockerd runs, as it does where the first command installs it.
func TestLongDockerPage(t *testing.T) {
	need(t, "dpkg-deb", "apt", "unshare", "systemd-nspawn", "dockerd", "docker", "nginx", "curl",
		"tar", "busybox")
	t.Parallel()
	all := steps(t, "../docs/docker.md")
	if len(all) != 5 {
		t.Fatalf("the page has %d blocks of commands", len(all))
	}
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "10.66.0.1/24", client, "eth0", "10.66.0.2/24")
	nginx(t, client, 80)
	deb, _ := ownPackages(t)
	root, image := serverRoot(t), filepath.Join(t.TempDir(), "nginx.tar")
	install(t, root, "busybox")
	if out, err := exec.Command("tar", "-C", root, "-cf", image, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := boot(t, server, deb, image)
	m.run("sh", "-ec", `mkdir -p /var/lib/docker /var/lib/containerd
mount -t tmpfs none /var/lib/docker
mount -t tmpfs none /var/lib/containerd
rm -f /var/lib/man-db/auto-update # or dpkg would look at all the manual pages of the machine
umount -l /proc/sys # dockerd changes what nspawn mounts read-only, in its network namespace
systemctl start docker
docker import -c 'CMD ["/bin/nginx", "-e", "stderr", "-c", "/etc/nginx.conf"]' /srv/nginx.tar nginx`)
	t.Cleanup(func() {
		m.try("sh", "-c", "docker rm -f $(docker ps -aq); systemctl stop docker docker.socket containerd")
	})
	next := func() {
		t.Helper()
		s := all[0]
		all = all[1:]
		printed := m.run("bash", "-ec", "sudo() { \"$@\"; }\ncd /srv\n"+s.commands)
		if wrong := agrees(s.output, printed); wrong != nil {
			t.Errorf("after\n%s%v; it printed\n%s", s.commands, wrong, printed)
		}
	}
	// started waits until the server of a container listens: docker run does not.
	started := func(container string) {
		t.Helper()
		nstest.Eventually(t, container+" answers in its container", func() bool {
			_, err := m.try("docker", "exec", container, "/bin/busybox", "wget", "-q", "-O-",
				"http://127.0.0.1/")
			return err == nil
		})
	}
	url := func(port int) string { return fmt.Sprintf("http://10.66.0.1:%d/", port) }

	next()
	started("web")
	reach(t, client, url(80))
	listenEcho(t, server, "10.66.0.1:8080") // what begins to listen later
	closed(t, client, "10.66.0.1:8080")
	if out := m.run("docker", "exec", "web", "/bin/busybox", "wget", "-q", "-O-",
		"http://10.66.0.2/"); out != "hello from nginx" {
		t.Errorf("the container calls outside and gets %q", out)
	}

	next()
	started("shop")
	reach(t, server, url(8081))
	refuse(t, client, url(8081))
	next()
	reach(t, client, url(8081))

	next()
	started("db")
	reach(t, client, url(8082))
	reach(t, client, url(8081))
	reach(t, client, url(80))
	next()
	refuse(t, client, url(8082))
	reach(t, client, url(80))
}
