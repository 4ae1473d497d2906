package test

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// rebootConfig is a node with containers of Docker. Its files lie in an overlay, which only the
// slow storage driver takes, and dockerd changes settings that nspawn mounts read-only.
const rebootConfig = `rm -f /var/lib/man-db/auto-update
printf '{"storage-driver":"vfs"}' >/etc/docker/daemon.json
mkdir -p /etc/weir /etc/systemd/system/docker.service.d
printf '[Service]\nExecStartPre=-/bin/umount -l /proc/sys\n' >/etc/systemd/system/docker.service.d/sys.conf
printf '[pods]\nranges = ["10.88.0.0/24"]\ndocker = true\n' >/etc/weir/weir.toml
printf 'add check-state\nadd allow tcp from any to table(app=web) 80 setup keep-state\n' >/etc/weir/rules
dpkg --no-triggers -i /srv/weir_*.deb
echo 'OPTIONS="--iface eth*"' >/etc/default/weir
systemctl daemon-reload
systemctl enable --now weir docker
docker import -c 'CMD ["/bin/nginx", "-e", "stderr", "-c", "/etc/nginx.conf"]' /srv/nginx.tar nginx
docker network create -d weir --ipam-driver weir -o weir.label.app=web pods
docker run -d --name web --restart always --network pods -p 8080:80 -p 8081:81 nginx`

// TestLongContainersOverReboot: containers that Docker starts again after a boot have their labels
// and published ports, and at no moment meanwhile does a port answer that the rules refuse.
func TestLongContainersOverReboot(t *testing.T) {
	need(t, "dpkg-deb", "unshare", "systemd-nspawn", "dockerd", "docker", "nginx", "curl", "tar",
		"busybox")
	t.Parallel()
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "10.66.0.1/24", client, "eth0", "10.66.0.2/24")
	deb, _ := ownPackages(t)
	image := filepath.Join(t.TempDir(), "nginx.tar")
	if out, err := exec.Command("tar", "-C", serverRoot(t), "-cf", image,
		".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	m := boot(t, server, deb, image)
	m.run("sh", "-ec", rebootConfig)
	t.Cleanup(func() { m.try("sh", "-c", "docker rm -f web; systemctl stop docker docker.socket") })
	serves := func(when string) {
		t.Helper()
		nstest.Eventually(t, when+" the container answers", func() bool {
			_, err := curl(client, "http://10.66.0.1:8080/")
			return err == nil
		})
		list := m.run("weir", "pod", "list")
		if strings.Count(list, "10.88.0.") != 1 || !strings.Contains(list, "app=web") {
			t.Errorf("%s:\n%s", when, list)
		}
	}
	serves("at first")
	var asked, answered atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			try, end := context.WithTimeout(ctx, 20*time.Millisecond)
			if c, err := client.DialContext(try, "tcp", "10.66.0.1:8081"); err == nil {
				answered.Add(1)
				c.Close()
			}
			end()
			asked.Add(1)
		}
	}()
	before := m.init
	m.try("systemctl", "start", "--no-block", "reboot.target")
	m.running(before)
	serves("after the boot")
	nstest.Eventually(t, "the port is asked", func() bool { return asked.Load() >= 20 })
	cancel()
	<-done
	if answered.Load() != 0 {
		t.Errorf("the port that is refused answered %d of %d times", answered.Load(), asked.Load())
	}
	if out := fmt.Sprint(m.try("docker", "ps", "--format", "{{.Names}}")); !strings.Contains(out,
		"web") {
		t.Errorf("Docker has %s", out)
	}
}
