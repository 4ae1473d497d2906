package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nstest"
)

// forwarding are the settings of a namespace that a node with containers changes.
func forwarding(t *testing.T, n *nstest.Node) string {
	t.Helper()
	out, err := n.Command("sh", "-c", `cd /proc/sys/net && grep . ipv4/ip_forward ipv4/conf/*/forwarding ipv4/conf/all/accept_redirects \
		ipv4/conf/lo/route_localnet ipv4/conf/lo/accept_local ipv6/conf/*/forwarding \
		ipv6/conf/*/accept_ra`).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// below lists the files below a directory.
func below(dir string) (all []string) {
	filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && !info.IsDir() {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	return all
}

// usedHost is a host that remembers how it was before Weir came.
type usedHost struct {
	*podHost
	settings string   // the kernel's
	etc      []string // files
	mounts   string   // where Weir mounts a bpf file system: there was none
}

func newUsedHost(t *testing.T) *usedHost {
	t.Helper()
	h := &usedHost{podHost: newPodHost(t, "add allow ip from any to any"),
		mounts: filepath.Join(t.TempDir(), "bpf")}
	h.weir("down")
	h.wait()
	h.bpffs = h.mounts
	t.Cleanup(func() { unix.Unmount(h.mounts, unix.MNT_DETACH) })
	for key, value := range map[string]string{"net.ipv4.conf.eth0.forwarding": "1",
		"net.ipv4.conf.all.accept_redirects": "0", "net.ipv6.conf.eth0.forwarding": "0",
		"net.ipv6.conf.lo.forwarding": "1"} {
		h.host.Sysctl(key, value)
	}
	h.settings, h.etc = forwarding(t, h.host), below(filepath.Join(h.root, "etc"))
	if !strings.Contains(h.settings, "ipv4/ip_forward:0") ||
		!strings.Contains(h.settings, "lo/route_localnet:0") {
		t.Fatalf("this test could not fail:\n%s", h.settings)
	}
	return h
}

// use runs a node with a container that publishes a port, and leaves damaged records.
func (h *usedHost) use(n int) {
	t := h.t
	t.Helper()
	h.start()
	h.attach(fmt.Sprint("web", n), "--publish", "8080:80")
	if now := forwarding(t, h.host); !strings.Contains(now, "ipv4/ip_forward:1") ||
		!strings.Contains(now, "lo/route_localnet:1") ||
		!strings.Contains(now, "eth0/accept_ra:2") {
		t.Fatalf("this test could not fail:\n%s", now)
	}
	for _, left := range []string{".rules.saved-4711", ".peers.json-12", ".key-4012345",
		"rules.saved.damaged-20260101T000000Z", "peers.json.newer-1"} {
		h.file("var/lib/weir/"+left, "secret")
	}
}

// asBefore wants files, mounts, links and the kernel's settings as they were.
func (h *usedHost) asBefore(when string) {
	t := h.t
	t.Helper()
	if now := forwarding(t, h.host); now != h.settings {
		t.Errorf("%s: the kernel's settings were\n%sand are\n%s", when, h.settings, now)
	}
	for _, dir := range []string{"run/weir", "var/lib/weir"} {
		if _, err := os.Stat(filepath.Join(h.root, dir)); err == nil {
			t.Errorf("%s: %s has %v", when, dir, below(filepath.Join(h.root, dir)))
		}
	}
	if now := below(filepath.Join(h.root, "etc")); fmt.Sprint(now) != fmt.Sprint(h.etc) {
		t.Errorf("%s: etc has %v", when, now)
	}
	if table, err := os.ReadFile("/proc/self/mountinfo"); err != nil ||
		strings.Contains(string(table), h.mounts+" ") {
		t.Errorf("%s: the bpf file system is still mounted, %v", when, err)
	}
	for _, l := range h.ownLinks() {
		t.Errorf("%s: interface %s is left", when, l)
	}
}

// TestDownLeavesWhatWasThere: the first `weir down` succeeds, with and without an agent, where Weir
// itself mounted the bpf file system, after crashes and with damaged records. Afterwards everything
// is as before the start: files, mounts, links, the kernel's settings.
func TestDownLeavesWhatWasThere(t *testing.T) {
	t.Parallel()
	h := newUsedHost(t)
	h.use(1)
	if _, stderr, err := h.try("down"); err != nil ||
		stderr != "weir: without network until restarted: 1 container\n" {
		t.Errorf("down: %v, %s", err, stderr)
	}
	if err := h.agentNode.wait(); err != nil {
		t.Errorf("the agent ends with %v", err)
	}
	h.asBefore("with an agent")

	h.use(2)
	h.kill()
	h.weir("down")
	h.asBefore("after a crash")

	h.use(3)
	h.kill()
	records, _ := filepath.Glob(filepath.Join(h.root, "var/lib/weir/pods/weir*.json"))
	if len(records) != 1 {
		t.Fatalf("records: %v", records)
	}
	if err := os.WriteFile(records[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.weir("down")
	h.asBefore("with a damaged record")

	// What the administrator set meanwhile stays.
	h.use(4)
	h.host.Sysctl("net.ipv4.ip_forward", "0")
	h.host.Sysctl("net.ipv4.conf.eth0.forwarding", "0")
	h.weir("down")
	h.wait()
	if now := forwarding(t, h.host); !strings.Contains(now, "ipv4/conf/eth0/forwarding:0") ||
		!strings.Contains(now, "lo/route_localnet:0") {
		t.Errorf("what was changed since is\n%s", now)
	}
}

// TestDownWhileAnotherNodeHasThePins: what another agent enforces is not taken from under it.
func TestDownWhileAnotherNodeHasThePins(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.start("--iface", "eth0")
	out, err := p.server.Command(weir, "down", "--root", t.TempDir(), "--bpffs",
		p.bpffs).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "another agent uses it") {
		t.Errorf("%v %s", err, out)
	}
	p.weir("status")
}
