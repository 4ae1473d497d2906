package page

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
)

// flow is what the node knows of a flow: a pod of a peer talks to a translated service of a pod.
func (n *node) flow(w http.ResponseWriter, r *http.Request) any {
	var q api.FlowQuestion
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return api.Error{Version: 1, Message: err.Error()}
	}
	if n.flows != nil {
		n.flows <- q
	}
	at := time.Now().Add(-40 * time.Second)
	return api.Flow{Version: 1, Src: api.FlowEnd{Addr: q.Src.Addr().String(), Port: q.Src.Port(),
		Kind: "peer", Name: "east", Peer: &api.Peer{Name: "east", Encrypted: true,
			Path: "198.51.100.7:51820", RTTSeconds: 0.0123, Handshake: &at}},
		Dst: api.FlowEnd{Addr: q.Dst.Addr().String(), Port: q.Dst.Port(), Kind: "pod",
			Name:   n.name("web-1"),
			Labels: map[string]string{"app": "web"}, Table: "served"},
		States: []api.State{{Proto: "tcp", From: "10.0.0.1:4000", To: "[fd00::1]:80",
			Flow: "default", Phase: "established", Rule: 100, AgeSeconds: 75, LeftSeconds: 299,
			Packets: [2]uint64{10, 8}, Bytes: [2]uint64{1000, 123456}, WireFrom: "192.0.2.1:61000",
			WireTo: "198.51.100.9:80"}},
		Why: &api.Explanation{Passed: true, Rule: 100, Text: "allow tcp from any to me 80",
			Reason: "rule", Tries: []api.Try{{Rule: 90, Text: "deny udp from any to any",
				Outcome: "protocol"}, {Rule: 100, Text: "allow tcp from any to me 80",
				Outcome: "matched"}}}}
}

// TestLongFlowInBrowser: a click on a flow, or Enter on the one that the arrows have chosen, shows
// what the node knows of it. Escape closes it, and its button narrows the list to these two ends.
func TestLongFlowInBrowser(t *testing.T) {
	c := newChromium(t)
	n := &node{events: 30, filters: make(chan string, 10), flows: make(chan api.FlowQuestion, 10)}
	s := httptest.NewServer(New(n, token))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1000, 800), chromedp.Navigate(s.URL+"/#"+token))
	n.asked(t, "")
	c.until("page.flows.size", "30")
	c.until("document.querySelectorAll('#list .row').length > 5", "true")
	c.run(chromedp.Click(chromedp.CSS("#list .row[data-at='2']")))
	c.until("document.getElementById('flow-details').open && "+
		"document.querySelectorAll('#flow-details-body table').length", "2")
	q := <-n.flows // the youngest is 29; 0, 10 and 20 were refused
	if q.Proto != "tcp" || q.Src.String() != "10.0.0.27:4000" || q.Dst.String() != "[fd00::1]:80" ||
		q.Hook != "in" || q.Recv != "eth0" {
		t.Errorf("the node was asked for %+v", q)
	}
	text := c.eval("document.getElementById('flow-details').innerText")
	for _, want := range []string{"a state was made by rule 100", "received by eth0",
		"a pod of node east", "encrypted, path 198.51.100.7:51820, 12.3 ms, last handshake 4",
		"pod <img src=x", "app=web, in table served", "192.0.2.1:61000 > 198.51.100.9:80",
		"established", "1 min", "123.5k", "passes, by rule 100", "deny udp from any to any"} {
		if !strings.Contains(text, want) {
			t.Errorf("the details lack %q:\n%s", want, text)
		}
	}
	if got := c.eval("String(window.owned) + document.querySelectorAll('main img').length"); got !=
		"undefined0" || strings.ContainsAny(text, "\u202e\x1b") {
		t.Errorf("a name was obeyed: %s", got)
	}
	c.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	if got := c.eval("document.documentElement.scrollWidth + ' ' + (document.getElementById(" +
		"'flow-details').scrollWidth <= 360)"); got != "360 true" {
		t.Errorf("on a telephone of 360 the page and its dialog are %s", got)
	}
	c.run(chromedp.EmulateViewport(1000, 800))
	c.key("Escape")
	c.until("document.getElementById('flow-details').open", "false")

	// The same by keys: from the third row one up, then a refused one far below.
	c.eval("document.getElementById('list').focus()")
	c.key("ArrowUp")
	c.key("Enter")
	if q := <-n.flows; q.Src.String() != "10.0.0.28:4000" {
		t.Errorf("by keys the node was asked for %+v", q)
	}
	c.key("Escape")
	for range 8 {
		c.key("ArrowDown")
	}
	c.key("Enter")
	if q := <-n.flows; q.Src.String() != "10.0.0.20:4000" {
		t.Errorf("by keys the node was asked for %+v", q)
	}
	c.until("document.getElementById('flow-details-body').innerText.includes('tcp-window')", "true")
	// The button is below what the node answers.
	c.until("document.querySelectorAll('#flow-details-body table').length", "2")
	c.click("flow-details-filter")
	n.asked(t, "tcp from 10.0.0.20 to fd00::1")
	if all := c.complaints(); len(all) > 0 {
		t.Errorf("the console says %v", all)
	}
}
