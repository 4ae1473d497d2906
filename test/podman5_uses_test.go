package test

import "strings"

// refusedNetworks: podman prints what the plugin says of a network that could not be.
func (p *podman5) refusedNetworks() {
	p.t.Helper()
	for args, want := range map[string]string{
		"--subnet 10.1.0.0/24": "[pods] ranges", "--internal": "--internal",
		"-o lable.app=web": "unknown option lable.app=web",
	} {
		command := strings.Fields("podman network create -d weir " + args + " bad")
		if out, err := p.try(command...); err == nil || !strings.Contains(out, want) {
			p.t.Errorf("%s: %v, %s", args, err, out)
		}
	}
}

// labels: those of the network are the administrator's, others change while the container runs, and
// the rules follow.
func (p *podman5) labels() {
	p.t.Helper()
	address := p.run("podman", "inspect", "-f", "{{.NetworkSettings.Networks.clients.IPAddress}}",
		"other")
	list := p.run("weir", "pod", "list")
	if !strings.Contains(list, "tier=1") || !strings.Contains(list, address+",fd00:88::") {
		p.t.Errorf("podman says %s, the node\n%s", address, list)
	}
	p.run("podman", "exec", "-d", "other", "/bin/nginx", "-e", "stderr", "-c", "/etc/nginx.conf")
	refuse(p.t, p.outside, "http://"+address+"/")
	p.run("weir", "pod", "label", "other", "app=web")
	reach(p.t, p.outside, "http://"+address+"/")
	p.run("weir", "pod", "label", "other", "app-")
	refuse(p.t, p.outside, "http://"+address+"/")
	if out, err := p.try("weir", "pod", "label", "web", "app=db"); err == nil ||
		!strings.Contains(out, "is of the configuration of pods") {
		p.t.Errorf("a label of the network: %v, %s", err, out)
	}
}

// again: a container's name and ports are free as soon as podman says that it is gone. It comes
// back when podman starts it again, also after the agent was away.
func (p *podman5) again() {
	p.t.Helper()
	for range 5 {
		p.run("podman", "rm", "-f", "-t0", "web")
		p.start("--name", "web", "--network", "pods", "-p", "8080:80", "-p", "8081:81", "nginx")
	}
	p.published()
	p.run("podman", "stop", "-t0", "web")
	refuse(p.t, p.outside, "http://10.66.0.1:8080/")
	p.run("podman", "start", "web")
	p.published()
	p.run("systemctl", "restart", "weir")
	p.published()
	p.run("podman", "restart", "-t0", "web")
	p.published()
	if out, err := p.try("podman", "run", "-d", "--network", "pods", "-p", "8080:80",
		"nginx"); err == nil || !strings.Contains(out, "8080") {
		p.t.Errorf("a published port once more: %v, %s", err, out)
	}
}

// severalNetworks: a container on two networks has an interface and the labels of each, and one can
// be taken from it and given again.
func (p *podman5) severalNetworks() {
	p.t.Helper()
	count := func(want int) {
		p.t.Helper()
		if n := strings.Count(p.run("weir", "pod", "list"), "\ntwo "); n != want {
			p.t.Errorf("the container has %d interfaces, not %d", n, want)
		}
	}
	p.start("--name", "two", "--network", "pods", "--network", "clients", "nginx")
	count(2)
	address := p.run("podman", "inspect", "-f", "{{.NetworkSettings.Networks.pods.IPAddress}}",
		"two")
	awaitServer(p.t, p.outside, "http://"+address+"/")
	reach(p.t, p.outside, "http://"+address+"/")
	refuse(p.t, p.outside, "http://"+p.run("podman", "inspect", "-f",
		"{{.NetworkSettings.Networks.clients.IPAddress}}", "two")+"/")
	p.reaches("two", "web")
	p.run("podman", "network", "disconnect", "clients", "two")
	count(1)
	reach(p.t, p.outside, "http://"+address+"/")
	p.reaches("two", "10.66.0.2")
	p.run("podman", "network", "connect", "clients", "two")
	count(2)
	p.reaches("two", "web") // the disconnect took the name server, which both networks have
}

const kubeFile = `apiVersion: v1
kind: Pod
metadata: {name: shop}
spec:
  containers:
  - name: web
    image: localhost/nginx:latest
    imagePullPolicy: Never
    ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81, hostPort: 8081}]
  - name: beside
    image: localhost/nginx:latest
    imagePullPolicy: Never
    command: [/bin/busybox, sleep, "600"]
`

// kube: a file of Kubernetes is played twice.
func (p *podman5) kube() {
	p.t.Helper()
	for range 2 {
		p.run("podman", "kube", "play", "--network", "pods", "/srv/kube.yaml")
		p.published()
		out, err := p.inside("shop-beside", "localhost", "300")
		if err != nil || out != "hello from nginx" {
			p.t.Errorf("from one container of a pod to another: %v, %s", err, out)
		}
		p.run("podman", "kube", "down", "/srv/kube.yaml")
		p.gone("after podman kube down")
	}
}

const composeFile = `name: shop
services:
  web:
    image: localhost/nginx:latest
    networks: [pods]
    ports: ["8080:80", "8081:81"]
  client:
    image: localhost/nginx:latest
    container_name: client
    command: [/bin/busybox, sleep, "600"]
    stop_grace_period: 0s
    networks: [pods]
networks:
  pods:
    driver: weir
    driver_opts: {label.app: web}
`

// compose: services of a file find each other by the names that they have there.
func (p *podman5) compose() {
	p.t.Helper()
	for range 2 {
		p.run("podman-compose", "-f", "/srv/compose.yaml", "up", "-d")
		p.published()
		p.reaches("client", "web")
		p.reaches("client", "shop_web_1")
		p.run("podman-compose", "-f", "/srv/compose.yaml", "down", "-t", "0")
		p.gone("after podman-compose down")
	}
}
