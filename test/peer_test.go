package test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// hosts are two nodes with containers, joined by a wire:
//
//	pods 10.88.1.0/24 === left  eth0 ------ eth0  right === pods 10.88.2.0/24
//	     fd00:88:1::/120  10.66.0.1        10.66.0.2          fd00:88:2::/120
//	                      fd66::1          fd66::2
type hosts struct{ left, right *podHost }

// wireRules let the encrypted packets pass, and nothing else that concerns the hosts.
const wireRules = "add allow udp from any to any 51820 via eth0\n"

func newHosts(t *testing.T, leftRules, rightRules string) *hosts {
	t.Helper()
	return newHostsWith(t, [2]string{}, leftRules, rightRules)
}

// newHostsWith makes hosts that have more in the section [overlay].
func newHostsWith(t *testing.T, overlay [2]string, leftRules, rightRules string) *hosts {
	t.Helper()
	lab := nstest.New(t)
	h := &hosts{left: &podHost{lab: lab, host: lab.Node("left")},
		right: &podHost{lab: lab, host: lab.Node("right")}}
	lab.Join(h.left.host, "eth0", "10.66.0.1/24 fd66::1/64", h.right.host, "eth0",
		"10.66.0.2/24 fd66::2/64")
	for i, one := range []*podHost{h.left, h.right} {
		one.outside = []*nstest.Node{h.right.host, h.left.host}[i]
		one.agentNode = newAgentNode(t, one.host)
		one.file("etc/weir/weir.toml",
			fmt.Sprintf("[pods]\nranges = [\"10.88.%d.0/24\", \"fd00:88:%d::/120\"]\n[overlay]\n%s",
				i+1, i+1, overlay[i]))
		one.start("--rules", one.file("etc/weir/rules", []string{leftRules, rightRules}[i]))
	}
	return h
}

// meet makes the hosts know each other.
func (h *hosts) meet(more ...string) {
	h.left.t.Helper()
	left, right := h.keys()
	h.left.weir(append([]string{"peer", "add", "right", "--key", right, "--endpoint",
		"10.66.0.2:51820",
		"--pods", "10.88.2.0/24,fd00:88:2::/120"}, more...)...)
	h.right.weir(append([]string{"peer", "add", "left", "--key", left, "--endpoint",
		"10.66.0.1:51820",
		"--pods", "10.88.1.0/24,fd00:88:1::/120"}, more...)...)
}

// keys are the public keys of both hosts.
func (h *hosts) keys() (left, right string) {
	h.left.t.Helper()
	return strings.TrimSpace(h.left.weir("peer", "key")),
		strings.TrimSpace(h.right.weir("peer", "key"))
}

func (h *podHost) peers() api.Peers {
	h.t.Helper()
	var all api.Peers
	unmarshal(h.t, h.weir("peer", "list", "-j"), &all)
	return all
}

// pageAt is the URL of a pod's web server.
func pageAt(a netip.Addr, port uint16) string {
	return "http://" + netip.AddrPortFrom(a, port).String() + "/"
}

// onWire captures what the left host's card sees while f runs and returns it, one packet a line.
func (h *hosts) onWire(t *testing.T, f func()) string {
	t.Helper()
	sniffer := capture(t, h.left.host, "eth0")
	f()
	out, err := h.left.host.Command("tcpdump", "-nr", sniffer.stop(),
		"not icmp6 and not arp and not ip6 proto 0").Output()
	if err != nil {
		t.Fatalf("tcpdump: %v\n%s", err, out)
	}
	return string(out)
}

// TestTwoHosts: pods of two hosts reach each other over both families exactly where the rules of
// both say, and nothing but WireGuard is on the wire.
func TestTwoHosts(t *testing.T) {
	need(t, "nginx", "curl", "tcpdump", "wg")
	t.Parallel()
	// Half-open states stay until looksRight has seen them.
	h := newHostsWith(t, [2]string{"[timeouts]\nsyn = 600\n"}, wireRules+`
add check-state
add reset tcp from any to table(far) 90 out via weir0
add allow tcp from any to table(far) 80,91 setup keep-state
add allow tcp from any to table(far) 81,90 in via pod:* setup keep-state
table far add 10.88.2.0/24
table far add 10.88.9.0/24
table far add fd00:88:2::/120
`, wireRules+`
add check-state
add reset tcp from any to table(app=web) 91 in via weir0
add allow tcp from table(offices) to table(app=web) 80 in via weir0 setup keep-state
add allow tcp from any to table(app=web) out via pod:* setup keep-state
add 60000 deny ip from any to any via weir0
table offices add 10.88.1.0/31
table offices add 10.88.1.2
table offices add fd00:88:1::/127
table offices add fd00:88:1::2
`)
	h.meet()
	web, webPod := h.right.attach("web", "--label", "app=web")
	nginx(t, web, 80, 81, 82)
	client, _ := h.left.attach("client", "--addr", "10.88.1.2", "--addr", "fd00:88:1::2")
	outsider, _ := h.left.attach("outsider")
	wait := fmt.Sprint(testTimeout.Seconds()) // for a refusal, which has to come
	wire := h.onWire(t, func() {
		for _, a := range webPod.Addrs {
			reach(t, client, pageAt(a, 80))
			// from the gateway's address, the first of the range
			reach(t, h.left.host, pageAt(a, 80))
			refuse(t, outsider, pageAt(a, 80)) // by the rules of the right host, in its tunnel
			refuse(t, client, pageAt(a, 81))   // by those of the left one, in its tunnel
			refuse(t, client, pageAt(a, 82))   // by those of the left one, at the pod
			// by a reset, of the left host's tunnel and of the right one's
			for _, port := range []uint16{90, 91} {
				if out, err := curl(client, "--connect-timeout", wait,
					pageAt(a, port)); err == nil || !strings.Contains(err.Error(), "(7)") {
					t.Errorf("%s is not reset: %q, %v", pageAt(a, port), out, err)
				}
			}
		}
	})
	for line := range strings.Lines(wire) {
		if !strings.Contains(line, ".51820: UDP, length") {
			t.Errorf("on the wire is %s", line)
		}
	}
	if strings.Count(wire, "\n") < 20 {
		t.Errorf("on the wire are only\n%s", wire)
	}
	h.looksRight(t)
	// no peer has it
	mustRun(t, h.left.host.Command("ip", "route", "add", "10.88.9.0/24", "dev", "weir0"))
	for _, from := range []*nstest.Node{h.left.host, client} {
		if _, err := curl(from, "--connect-timeout", wait, "http://10.88.9.1/"); err == nil ||
			!strings.Contains(err.Error(), "(7)") {
			t.Errorf("%s does not learn that no peer has an address: %v", from, err)
		}
	}
	if out, err := wgShow(h.left); err != nil || !strings.Contains(out, "latest handshake") ||
		!strings.Contains(out, "10.88.2.0/24") {
		t.Errorf("wg show: %v\n%s", err, out)
	}
}

// looksRight checks what the reading commands say after TestTwoHosts.
func (h *hosts) looksRight(t *testing.T) {
	t.Helper()
	p := h.left.peers()
	if len(p.Peers) != 1 || p.Peers[0].Handshake == nil || p.Peers[0].Received == 0 ||
		p.Peers[0].Path != "10.66.0.2:51820" {
		t.Errorf("weir peer list -j: %+v", p)
	}
	if out := h.left.weir("peer", "list"); !strings.Contains(out, "right") ||
		!strings.Contains(out, " ago") {
		t.Errorf("weir peer list:\n%s", out)
	}
	var s api.States
	h.left.json(&s, "fw", "states")
	engines := map[string]int{}
	for _, one := range s.States {
		if one.Proto == "tcp" && strings.HasSuffix(one.To, ":80") {
			engines[one.Engine]++
		}
	}
	if engines[""] < 2 || engines["tunnel"] < 2 {
		t.Errorf("states at port 80 by engine: %v\n%+v", engines, s)
	}
	var deleted api.Deleted
	h.left.json(&deleted, "fw", "states", "delete", "tcp", "to", "any", "80")
	h.left.json(&s, "fw", "states", "tcp", "to", "any", "80")
	if deleted.Deleted < 4 || len(s.States) > 0 {
		t.Errorf("%d states of both engines are deleted, left are %+v", deleted.Deleted, s.States)
	}
	var r api.Rules
	h.right.json(&r, "fw", "show")
	for _, one := range r.Rules {
		if one.Number == 60000 && one.Packets == 0 {
			t.Errorf("no packet of the tunnel was counted by %s", one.Text)
		}
	}
	var status api.Status
	h.left.json(&status, "status")
	hook := ""
	for _, i := range status.Interfaces {
		if i.Name == "weir0" {
			hook = i.Hook
		}
	}
	if hook != "tunnel" || !status.Healthy {
		t.Errorf("weir status: %+v", status)
	}
	if out := h.right.weir("flow", "watch", "--since", "1m", "--past",
		"drop"); !strings.Contains(out, "weir0") {
		t.Errorf("weir flow watch does not show what was dropped in the tunnel:\n%s", out)
	}
}

// wgShow runs wg show, which looks for sockets in one place only: the node's is shown to it there.
func wgShow(h *podHost) (string, error) {
	script := fmt.Sprintf("mkdir -p /var/run/wireguard && mount --bind %s/var/run/wireguard "+
		"/var/run/wireguard && wg show weir0", h.root)
	script = "mount -t tmpfs none /run && " + script
	out, err := h.host.Command("unshare", "-m", "--propagation", "private", "sh", "-c",
		script).CombinedOutput()
	return string(out), err
}

// TestLongTwoHostsRestart: the agent of one host dies; its pods are unreachable rather than reached
// in the clear, and with the next agent a download in progress continues.
func TestLongTwoHostsRestart(t *testing.T) {
	need(t, "nginx", "curl", "tcpdump")
	t.Parallel()
	rules := wireRules + "add check-state\nadd allow tcp from any to any setup keep-state\n"
	h := newHosts(t, rules, rules)
	h.meet("--keepalive", "1s", "--psk",
		h.left.file("psk", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"))
	for _, name := range []string{"key", "peers.json"} {
		info, err := os.Stat(filepath.Join(h.left.root, "var/lib/weir", name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v; others must not read it", name, info.Mode(), err)
		}
	}
	web, webPod := h.right.attach("web")
	nginx(t, web, 80)
	client, _ := h.left.attach("client")
	at := pageAt(webPod.Addrs[0], 80)
	reach(t, client, at)

	const size = 2 << 20
	slow := client.Command("curl", "-sS", "-r", fmt.Sprintf("0-%d", size-1), "--limit-rate", "400k",
		"-o", filepath.Join(t.TempDir(), "got"),
		"-w", "%{size_download}", "-m", fmt.Sprint(testTimeout.Seconds()), at+"big")
	var got strings.Builder
	slow.Stdout, slow.Stderr = &got, &got
	done := background(t, slow)
	time.Sleep(time.Second)
	wire := h.onWire(t, func() {
		h.left.kill()
		time.Sleep(time.Second)
		refuse(t, client, at)
		h.left.start("--rules", filepath.Join(h.left.root, "etc/weir/rules"))
		if err := <-done; err != nil || got.String() != fmt.Sprint(size) {
			t.Errorf("the download ended with %v, %s", err, &got)
		}
	})
	if strings.Contains(wire, "10.88.") {
		t.Errorf("while the agent was away, this was on the wire:\n%s", wire)
	}
	reach(t, client, at)
	if p := h.left.peers().Peers[0]; !p.Preshared || p.Keepalive != 1 {
		t.Errorf("after the restart the peer is %+v", p)
	}

	h.left.weir("peer", "remove", "right")
	refuse(t, client, at)
	if out, _, err := h.left.try("peer", "remove", "right"); err == nil {
		t.Errorf("a peer is removed twice: %s", out)
	}
}

// TestLongTwoHostsDirect: without encryption pods keep their addresses on the wire, also while no
// agent runs, and down leaves nothing of the peers, whether the agent is there or not.
func TestLongTwoHostsDirect(t *testing.T) {
	need(t, "nginx", "curl", "tcpdump")
	t.Parallel()
	rules := "add check-state\nadd allow tcp from any to table(web) 80 setup keep-state\n" +
		"table web add 10.88.2.0/24\ntable web add fd00:88:2::/120\n"
	h := newHosts(t, rules, rules)
	clean := []string{footprint(t, h.left), footprint(t, h.right)}
	key := strings.TrimSpace(h.right.weir("peer", "key"))
	add := []string{"peer", "add", "right", "--key", key, "--encrypt=false", "--pods",
		"10.88.2.0/24,fd00:88:2::/120", "--endpoint"}
	if _, stderr, err := h.left.try(append(add, "10.66.0.2:51820")...); err == nil ||
		!strings.Contains(stderr, "an endpoint of their family") {
		t.Errorf("pods of a family without an endpoint: %v\n%s", err, stderr)
	}
	if now := h.left.peers(); len(now.Peers) != 0 {
		t.Errorf("a refused peer is there: %+v", now)
	}
	h.left.weir(append(add, "10.66.0.2:51820,[fd66::2]:51820")...)
	h.right.weir("peer", "add", "left", "--key", strings.TrimSpace(h.left.weir("peer", "key")),
		"--encrypt=false",
		"--pods", "10.88.1.0/24,fd00:88:1::/120", "--endpoint", "10.66.0.1:1,[fd66::1]:1")
	web, webPod := h.right.attach("web")
	nginx(t, web, 80, 81)
	client, clientPod := h.left.attach("client")
	all := func() {
		t.Helper()
		for _, a := range webPod.Addrs {
			reach(t, client, pageAt(a, 80))
			refuse(t, client, pageAt(a, 81))
		}
	}
	wire := h.onWire(t, all)
	for i := range webPod.Addrs {
		if !strings.Contains(wire, clientPod.Addrs[i].String()) ||
			!strings.Contains(wire, webPod.Addrs[i].String()) || strings.Contains(wire, "51820") {
			t.Errorf("on the wire is\n%s", wire)
		}
	}
	h.left.stop()
	h.right.kill()
	all()
	h.left.start("--rules", filepath.Join(h.left.root, "etc/weir/rules"))
	all()
	h.left.weir("down")
	h.left.wait()
	h.right.weir("down")
	for i, one := range []*podHost{h.left, h.right} {
		if now := footprint(t, one); now != clean[i] {
			t.Errorf("down of host %d leaves\n%s\nbefore the peers there was\n%s", i, now, clean[i])
		}
		for _, dir := range []string{"var", "run"} {
			if _, err := os.Stat(filepath.Join(one.root, dir)); !os.IsNotExist(err) {
				t.Errorf("down of host %d leaves %s: %v", i, dir, err)
			}
		}
	}
}

// footprint lists what a host has that others could see: links and routes, without the gateways of
// pods on the loopback. The tunnel is the agent's and goes with it.
func footprint(t *testing.T, h *podHost) string {
	t.Helper()
	out, err := h.host.Command("sh", "-c",
		"ip -br link | grep -v weir0; ip route show | grep -v weir0; "+
			"ip -6 route show | grep -v -e fe80 -e multicast -e weir0 -e 'dev lo'").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestBadPeers: what makes no sense is refused with a reason, and changes nothing.
func TestBadPeers(t *testing.T) {
	nstest.RequireRoot(t)
	t.Parallel()
	h := newHosts(t, wireRules, "add allow tcp from any to any\n")
	key := strings.TrimSpace(h.right.weir("peer", "key"))
	own := strings.TrimSpace(h.left.weir("peer", "key"))
	const away = "10.88.9.0/24"
	for _, bad := range []struct {
		says string
		args []string
	}{
		{"missing NAME", []string{"--key", key, "--pods", away}},
		{"missing --key", []string{"x", "--pods", away}},
		{"44 characters", []string{"x", "--key", "abc", "--pods", away}},
		{"the key of this node", []string{"x", "--key", own, "--pods", away}},
		{"missing --pods", []string{"x", "--key", key}},
		{"is not a range", []string{"x", "--key", key, "--pods", "10.88.9.0"}},
		{"bits set; write 10.88.9.0/24", []string{"x", "--key", key, "--pods", "10.88.9.1/24"}},
		{"overlap 10.88.1.0/24", []string{"x", "--key", key, "--pods", "10.88.0.0/16"}},
		{"hint: write 10.66.0.2:51820", []string{"x", "--key", key, "--pods", away, "--endpoint",
			"10.66.0.2"}},
		{"whole seconds", []string{"x", "--key", key, "--pods", away, "--keepalive", "1500ms"}},
		{"no such file", []string{"x", "--key", key, "--pods", away, "--psk", "/nowhere/psk"}},
		{"it has to be an address", []string{"x", "--key", key, "--pods", away, "--encrypt=false",
			"--endpoint", "right.example:1"}},
		{"another program has a route to 10.66.0.0/24",
			[]string{"x", "--key", key, "--pods", "10.66.0.0/24"}},
		{"it needs an endpoint", []string{"x", "--key", key, "--pods", away, "--encrypt=false"}},
		{"no endpoint is on a network of this host",
			[]string{"x", "--key", key, "--pods", away, "--encrypt=false", "--endpoint",
				"10.99.0.1:1"}},
		{"no blanks", []string{"x y", "--key", key, "--pods", away}},
	} {
		_, stderr, err := h.left.try(append([]string{"peer", "add"}, bad.args...)...)
		if err == nil || !strings.Contains(stderr, bad.says) {
			t.Errorf("weir peer add %q: %v, %s; it should say %q", bad.args, err, stderr, bad.says)
		}
	}
	if p := h.left.peers(); len(p.Peers) != 0 {
		t.Errorf("refused peers are there: %+v", p)
	}
	if out := footprint(t, h.left); strings.Contains(out, "10.88.9.") {
		t.Errorf("refused peers have routes:\n%s", out)
	}
	// The right host's rules let no UDP pass: the tunnel could not work, and the answer says so.
	_, stderr, err := h.right.try("peer", "add", "left", "--key", own, "--endpoint",
		"10.66.0.1:51820", "--pods", "10.88.1.0/24")
	if err != nil || !strings.Contains(stderr,
		"weir fw add allow udp from me 51820 to 10.66.0.1 51820 out") {
		t.Errorf("weir peer add behind rules that refuse its packets: %v\n%s", err, stderr)
	}
	// A name that is known is changed, also to another key.
	h.left.weir("peer", "add", "right", "--key", key, "--pods", away)
	h.left.weir("peer", "add", "right", "--key", own[:20]+key[20:], "--pods", "10.88.8.0/24")
	if p := h.left.peers().Peers; len(p) != 1 ||
		p[0].Pods[0] != netip.MustParsePrefix("10.88.8.0/24") || p[0].Key == key {
		t.Errorf("after a change of the key: %+v", p)
	}
	out := footprint(t, h.left)
	if !strings.Contains(out, "unreachable "+away) ||
		!strings.Contains(out, "unreachable 10.88.8.0/24") {
		t.Errorf("after a change of the pods the routes are\n%s", out)
	}
	if p := h.left.peers().Held; len(p) != 1 || p[0].Name != "right" ||
		p[0].Pods[0] != netip.MustParsePrefix(away) {
		t.Errorf("after a change of the pods these are unreachable: %+v", p)
	}
	// An interface that another program deletes is made again, with its peers.
	h.left.host.IP("link del weir0")
	eventually(t, "the tunnel is made again", func() error {
		out, err := h.left.host.Command("ip", "route", "show", "10.88.8.0/24", "dev",
			"weir0").CombinedOutput()
		if err == nil && len(out) == 0 {
			err = errors.New("no route")
		}
		return err
	})
}
