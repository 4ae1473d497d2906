package test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// fetchSlow downloads /slow, 64 MiB at 8 MiB/s at most, from a pod and returns the longest pause;
// third is called when a third of it is there.
func fetchSlow(t *testing.T, from *nstest.Node, url string, third func()) (longest time.Duration) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DialContext: from.DialContext},
		Timeout: testTimeout}
	defer client.CloseIdleConnections()
	answer, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	const size = 64 << 20
	want := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	buf, n, last := make([]byte, len(want)), 0, time.Now()
	for n < size {
		k, err := answer.Body.Read(buf[:len(want)-n%len(want)])
		longest, last = max(longest, time.Since(last)), time.Now()
		if !bytes.Equal(buf[:k], want[n%len(want):][:k]) {
			t.Fatalf("other bytes than nginx has came after %d", n)
		}
		if n += k; third != nil && n > size/3 {
			third()
			third, last = nil, time.Now()
		}
		if err != nil && (err != io.EOF || n < size) {
			t.Fatalf("after %d of %d bytes: %v", n, size, err)
		}
	}
	return longest
}

// TestLongPathOfPeerDies: a peer has two names. The path that is in use dies in mid-download, and
// no one gets an error: the download continues over the other path and is whole. Then the first one
// comes back and the other one dies.
func TestLongPathOfPeerDies(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "nft")
	rules := "add allow udp from any to any 51820 via eth*\nadd check-state\n" +
		"add allow tcp from any to any setup keep-state\n"
	h := newHosts(t, rules, rules)
	h.left.lab.Join(h.left.host, "eth1", "10.67.0.1/24", h.right.host, "eth1", "10.67.0.2/24")
	h.left.stop()
	h.left.names = h.left.file("hosts",
		"10.66.0.2 right.example\n10.67.0.2 spare.example\n127.0.0.1 localhost\n")
	h.left.start("--rules", h.left.root+"/etc/weir/rules")

	left, right := h.keys()
	h.left.weir("peer", "add", "right", "--key", right, "--endpoint",
		"right.example:51820,spare.example:51820", "--pods", "10.88.2.0/24")
	h.right.weir("peer", "add", "left", "--key", left, "--endpoint",
		"10.66.0.1:51820,10.67.0.1:51820", "--pods", "10.88.1.0/24")
	web, webPod := h.right.attach("web")
	nginx(t, web, 80)
	client, _ := h.left.attach("client")
	at := pageAt(webPod.Addrs[0], 80)
	reach(t, client, at)

	wires := map[string]string{"10.66.0.2:51820": "eth0", "10.67.0.2:51820": "eth1"}
	for range 2 {
		before := h.left.peers().Peers[0].Path
		dead := wires[before]
		if dead == "" {
			t.Fatalf("the path is %q", before)
		}
		pause := fetchSlow(t, client, at+"slow", func() { h.block(t, dead) })
		t.Logf("over %s: the longest pause was %v", before, pause)
		if now := h.left.peers().Peers[0]; wires[now.Path] == "" || now.Path == before {
			t.Errorf("after the path over %s died it is %q", dead, now.Path)
		}
		h.block(t, "none")
	}
}

// block makes both hosts lose whatever comes in through an interface, before any program sees it.
func (h *hosts) block(t *testing.T, iface string) {
	t.Helper()
	for _, one := range []*podHost{h.left, h.right} {
		table := "table netdev cut\ndelete table netdev cut\n"
		if iface != "none" {
			table += fmt.Sprintf("table netdev cut { chain in { type filter hook ingress device "+
				"%s priority -500; drop; }; }\n", iface)
		}
		one.host.Run("nft", "-f", one.file("cut.nft", table))
	}
}
