package test

import (
	"strings"
	"testing"
)

// TestLongDockerBesideWeir: Docker's own bridge networks and Weir's pods on one host, each with
// published ports, while netfilter drops what is forwarded.
func TestLongDockerBesideWeir(t *testing.T) {
	need(t, "dockerd", "docker", "nginx", "curl", "busybox", "tar", "iptables")
	h, _ := newContainerHost(t)
	h.weir("fw", "load", h.file("beside.rules", containerRules+`
add allow tcp from any to me 9080,9081 in setup keep-state
add allow tcp from table(app=client) to 172.16.0.0/12 80 in setup keep-state
`))
	docker := newDocker(t, h)
	// dockerd does this where it is the first to have the host forward
	mustRun(t, h.host.Command("iptables", "-P", "FORWARD", "DROP"))
	mustRun(t, docker("network", "create", "--ipv6", "-d", "weir", "--ipam-driver", "weir", "pods"))
	mustRun(t, docker("network", "create", "own"))
	t.Cleanup(func() { docker("rm", "-f", "web", "client", "plain", "owned", "caller").Run() })
	run := func(args ...string) {
		t.Helper()
		mustRun(t, docker(append([]string{"run", "-d", "--name"}, args...)...))
	}
	serve := func(args ...string) { t.Helper(); run(append(args, serveWeb...)...) }
	serve("web", "-p", "8080:80", "--network",
		"name=pods,driver-opt=weir.label.app=web,driver-opt=weir.name=web", "server")
	run("client", "--network", "name=pods,driver-opt=weir.label.app=client", "client", "/bin/sleep",
		"600")
	serve("plain", "-p", "9080:80", "server")
	serve("owned", "-p", "9081:80", "--network", "own", "server")
	run("caller", "client", "/bin/sleep", "600")
	address := func(container string) string {
		return strings.TrimSpace(mustRun(t, docker("inspect", "-f",
			"{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", container)))
	}
	for _, port := range []string{"8080", "9080", "9081"} {
		awaitServer(t, h.host, "http://10.66.0.1:"+port+"/")
		reach(t, h.outside, "http://10.66.0.1:"+port+"/")
		reach(t, h.host, "http://10.66.0.1:"+port+"/")
	}
	type call struct{ name, from, to string }
	try := func(c call) {
		t.Helper()
		out, err := docker("exec", c.from, "/bin/wget", "-q", "-O-",
			"http://"+c.to+"/").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "hello from nginx") {
			t.Errorf("%s: %v: %s", c.name, err, out)
		}
	}
	for _, c := range []call{
		{"a pod calls outside", "client", "10.66.0.2"},
		{"a pod calls outside, IPv6", "client", "[fd66::2]"},
		{"a pod calls a pod", "client", address("web")},
		{"a pod calls a pod's port", "client", "10.66.0.1:8080"},
		{"a pod calls Docker's port", "client", "10.66.0.1:9080"},
		{"a pod calls Docker's port of a network", "client", "10.66.0.1:9081"},
		{"a pod calls Docker's container", "client", address("plain")},
		{"Docker's container calls outside", "caller", "10.66.0.2"},
		{"Docker's container calls a pod", "caller", address("web")},
		{"Docker's container calls Docker's port", "caller", "10.66.0.1:9081"},
	} {
		try(c)
	}
	// Packets of an interface without hooks meet no published port. One that is named has hooks.
	h.stop()
	h.file("etc/weir/weir.toml", strings.Replace(containerSettings, `["eth0"]`,
		`["eth0", "docker0"]`, 1))
	h.start("--rules", h.file("named.rules", containerRules+
		"add allow tcp from any to me 9080 in setup keep-state\n"+
		"add allow ip from 172.17.0.0/16 to any in recv docker0 keep-state\n"+
		"add allow ip from any to 172.17.0.0/16 80 keep-state\n"))
	for _, c := range []call{
		{"Docker's container calls a pod's port", "caller", "10.66.0.1:8080"},
		{"Docker's container calls a pod", "caller", address("web")},
		{"Docker's container calls outside", "caller", "10.66.0.2"},
	} {
		try(c)
	}
	reach(t, h.outside, "http://10.66.0.1:9080/")
}
