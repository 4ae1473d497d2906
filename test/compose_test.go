package test

import (
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// shopFile is a project of docker-compose: its network gives the containers a label.
const shopFile = `services:
  web:
    image: server
    command: ["/bin/nginx", "-e", "stderr", "-c", "/etc/nginx.conf"]
    ports: ["8080:80", "8081:81"]
    networks: [pods]
  client:
    image: client
    command: ["/bin/sleep", "600"]
    extra_hosts: ["neighbour:10.66.0.2"]
    stop_grace_period: 0s
    depends_on: [web]
    networks: [plain]
networks:
  pods:
    driver: weir
    driver_opts: {weir.label.app: web}
    enable_ipv6: true
    ipam: {driver: weir}
  plain:
    driver: weir
    enable_ipv6: true
    ipam: {driver: weir}
`

// TestLongDockerCompose: a project of docker-compose comes and goes with its networks, also while
// another agent is at work than the one that knew them first.
func TestLongDockerCompose(t *testing.T) {
	t.Parallel()
	need(t, "dockerd", "docker", "docker-compose", "nginx", "curl", "busybox", "tar")
	h, _ := newContainerHost(t)
	docker := newDocker(t, h)
	file := h.file("shop/compose.yaml", shopFile)
	compose := func(args ...string) *nstest.Cmd {
		return h.host.Command("docker-compose", append([]string{"-H",
			"unix://" + filepath.Join(h.root, "docker.sock"), "-p", "shop", "-f", file},
			args...)...)
	}
	t.Cleanup(func() { compose("down", "-t", "0").Run() })
	inside := func(command ...string) (string, error) {
		out, err := docker(append([]string{"exec", "shop_client_1"}, command...)...).Output()
		return string(out), err
	}
	for _, round := range []string{"first", "again"} {
		mustRun(t, compose("up", "-d"))
		t.Log(round, h.weir("pod", "list"))
		h.meetsTheRules(t, inside)
		h.meetsPublishedPorts(t, inside)
		meetsByName(t, inside, "neighbour")
		mustRun(t, compose("stop", "-t", "0"))
		h.stop()
		h.start("--rules", filepath.Join(h.root, "etc/weir/rules"))
		mustRun(t, compose("start"))
		h.meetsTheRules(t, inside)
		h.meetsPublishedPorts(t, inside)
		mustRun(t, compose("down", "-t", "0"))
		h.isEmpty(t)
	}
}
