package page

import (
	"fmt"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
)

// neighbourhood is a node with pods and peers, on which something flows between all kinds of ends.
func neighbourhood(n *node, pods int) {
	at := time.Unix(hourBegins, 0)
	for i := range pods {
		name := fmt.Sprintf("pod-%02d", i)
		if i == 0 {
			name = hostile
		}
		n.pods.Pods = append(n.pods.Pods, api.Pod{Container: fmt.Sprint("c", i), IfName: "eth0",
			Name: name, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 88, 0, byte(2 + i)}),
				netip.MustParseAddr(fmt.Sprintf("fd00:88::%x", 2+i))}})
	}
	n.peers.Peers = []api.Peer{{Name: "east", Encrypted: true, Handshake: &at,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.88.1.0/24"),
			netip.MustParsePrefix("fd00:88:1::/120")}}, {Name: "west", Encrypted: true,
		Pods: []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}}}
	n.top = &api.Top{Version: 1, Time: at, Talkers: []api.Talker{
		{Proto: "tcp", Src: "203.0.113.9", Dst: "10.88.0.3", Port: 80, Rate: 2e6, States: 40},
		{Proto: "tcp", Src: "203.0.113.9", Dst: "fd00:88::3", Port: 443, Rate: 1e6, States: 2},
		{Proto: "tcp", Src: "10.88.0.3", Dst: "10.88.0.2", Port: 5432, Rate: 4e5, States: 8},
		{Proto: "tcp", Src: "fd00:88:1::7", Dst: "fd00:88::3", Port: 80, Rate: 9e4, States: 3},
		{Proto: "tcp", Src: "192.0.2.1", Dst: "198.51.100.1", Port: 22, SrcMine: true, States: 1},
		{Proto: "udp", Src: "10.88.0.4", Dst: "10.88.2.200", Port: 53, Rate: 100, States: 1},
	}, Refusals: []api.Refusals{
		{Proto: "tcp", Src: "198.51.100.66", Dst: "192.0.2.1", DstMine: true, Port: 23, Rule: 900,
			Reason: "rule", Packets: 1234, Last: at.Add(-10 * time.Second)},
		{Proto: "tcp", Src: "198.51.100.67", Dst: "192.0.2.1", DstMine: true, Port: 23, Rule: 900,
			Reason: "rule", Packets: 99999, Last: at.Add(-time.Hour)}},
		Ages: []api.Age{{Proto: "tcp", Phase: "established", Counts: []int{2, 5, 9, 20, 18, 0}}}}
}

// TestLongMapInBrowser: pods, other nodes and the world are boxes. What flows between them are
// lines, dashed if it was refused lately. What is too much is one box, and a box narrows the list
// of flows. The map fits a telephone and a wall.
func TestLongMapInBrowser(t *testing.T) {
	c := newChromium(t)
	n := &node{filters: make(chan string, 10)}
	neighbourhood(n, 30)
	s := httptest.NewServer(New(n, token))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1400, 900), chromedp.Navigate(s.URL+"/#"+token))
	n.asked(t, "")
	// host, three of the world, two nodes, 24 pods and a box for the rest
	c.until("document.querySelectorAll('#map-svg .node').length", "31")
	texts := c.eval("[...document.querySelectorAll('#map-svg title')].map(t => " +
		"t.textContent).join('|')")
	for _, want := range []string{
		"203.0.113.9 > pod-01: 3 MB/s, 42 states", // both families
		"pod-01 > <img src=x onerror=", "east > pod-01: 90 kB/s, 3 states",
		"this host > 198.51.100.1: 0 B/s, 1 state", "pod-02 > west: 100 B/s",
		"198.51.100.66 > this host: 1234 packets refused", "|6 more|", "west, no handshake"} {
		if !strings.Contains("|"+texts+"|", want) {
			t.Errorf("the map lacks %q:\n%s", want, texts)
		}
	}
	if strings.Contains(texts, "198.51.100.67") || strings.ContainsAny(texts, "\u202e\x1b") {
		t.Errorf("the map shows %s", texts)
	}
	if got := c.eval("[document.querySelectorAll('#map-svg .edge').length, " +
		"document.querySelectorAll('#map-svg .bad').length, " +
		"document.querySelectorAll('#map-svg .idle').length, String(window.owned), " +
		"document.querySelectorAll('main img').length].join()"); got != "6,1,1,undefined,0" {
		t.Errorf("lines, refused ones, idle ones, and what was obeyed: %s", got)
	}
	for _, pair := range []struct{ addr, prefix, want string }{
		{"10.88.1.255", "10.88.1.0/24", "true"}, {"10.88.2.0", "10.88.1.0/24", "false"},
		{"fd00:88:1::ff", "fd00:88:1::/120", "true"},
		{"fd00:88:1::100", "fd00:88:1::/120", "false"},
		{"10.0.0.1", "::/0", "false"}, {"::1", "::/0", "true"}, {"9.9.9.9", "0.0.0.0/0", "true"}} {
		if got := c.eval(fmt.Sprintf("page.within(%q, %q)", pair.addr,
			pair.prefix)); got != pair.want {
			t.Errorf("%s in %s: %s", pair.addr, pair.prefix, got)
		}
	}
	c.eval("[...document.querySelectorAll('#map-svg .node')].find(g => g.textContent.startsWith(" +
		"'pod-01')).dispatchEvent(new MouseEvent('click'))")
	n.asked(t, "from 10.88.0.3,fd00:88::3")
	inside := "[...document.querySelectorAll('#map-svg .node rect')].every(r => { const b = " +
		"r.getBoundingClientRect(); return b.left >= 0 && b.right <= innerWidth && b.width > 60 })" +
		" + ' ' + document.documentElement.scrollWidth"
	for _, width := range []int64{360, 3840} {
		c.run(chromedp.EmulateViewport(width, 1200))
		c.until(inside, fmt.Sprint("true ", width))
	}
	if all := c.complaints(); len(all) > 0 {
		t.Errorf("the console says %v", all)
	}
}
