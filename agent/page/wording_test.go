package page

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

// quiet is a node with little of everything: one state, one packet, three log events of one source.
func quiet(w http.ResponseWriter, r *http.Request) {
	n := &node{calm: true}
	switch r.URL.Path {
	case "/v1/status":
		api.WriteAnswer(w, func() (api.Status, error) {
			return api.Status{Version: 1, Healthy: true, Weir: "1.2.3", Rules: 1, States: 1,
				StatesMax: 10}, nil
		})
	case "/v1/rules":
		api.WriteAnswer(w, func() (api.Rules, error) {
			return api.Rules{Version: 1, Rules: []api.Rule{{Number: 100, Text: "check-state"},
				{Number: 200, Text: "deny udp from any to any"}}}, nil
		})
	case "/v1/why":
		api.WriteAnswer(w, func() (api.Explanation, error) {
			return api.Explanation{Passed: true, Rule: 200, Text: "allow", Reason: "rule",
				Tries: []api.Try{{Rule: 100, Text: "deny udp", Outcome: "protocol"},
					{Rule: 150, Text: "allow in", Outcome: "no"}}}, nil
		})
	case "/v1/top":
		api.WriteAnswer(w, func() (api.Top, error) {
			return api.Top{Version: 1, Refused: api.Count{Packets: 1},
				Talkers: []api.Talker{{Proto: "tcp", Src: "10.0.0.1", Dst: "10.0.0.2", Port: 80,
					Rate: 2600, Bytes: 746, States: 1}},
				Refusals: []api.Refusals{{Proto: "udp", Src: "10.0.0.9", Dst: "10.0.0.1", Port: 53,
					Packets: 1, Rule: 200, Reason: "rule"}},
				Ages: []api.Age{{Proto: "tcp", Phase: "established",
					Counts: []int{1e5, 1e5, 1e5, 1e5, 1e5, 1e5}}}}, nil
		})
	case "/v1/events":
		if _, err := observe.ParseFilter(r.URL.Query().Get("filter"), nil); err != nil {
			api.WriteError(w, http.StatusBadRequest, err)
			return
		}
		for port := range uint16(3) {
			e := observe.Event{At: time.Unix(1700000000, 0), Recv: "eth0"}
			e.Event = firewall.Event{Kind: firewall.EventLog, Proto: 6, Length: 60,
				Verdict: firewall.Verdict{Pass: true, Rule: 100},
				Src:     netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), 4000+port),
				Dst:     netip.MustParseAddrPort("10.0.0.2:80")}
			w.Write(e.AppendJSON(nil))
		}
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		n.ServeHTTP(w, r)
	}
}

// TestWordingInBrowser: numbers have their unit, and one thing no plural; what is refused has a
// colour of its own; mistakes stand with their line; words stay whole on a telephone.
func TestWordingInBrowser(t *testing.T) {
	c := newChromium(t)
	s := httptest.NewServer(New(http.HandlerFunc(quiet), token))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1000, 800), chromedp.Navigate(s.URL+"/#"+token))
	text := func(id string) string { return "document.getElementById('" + id + "').innerText" }
	c.until(text("status"),
		"healthy | guards | 1 rule | 1 of 10 states | 1 packet refused | Weir 1.2.3")
	for id, want := range map[string]string{
		"talkers":  "tcp 10.0.0.1 > 10.0.0.2:80 2.6 kB/s, 746 B, 1 state",
		"refusals": "udp 10.0.0.9 > 10.0.0.1:53 1 packet, rule 200",
		"rule-rows": "100 0 0 counted by the rules that made the states check-state " +
			"200 0 0 never matched deny udp from any to any",
	} {
		if got := strings.Join(strings.Fields(c.eval(text(id))), " "); got != want {
			t.Errorf("%s is %q, want %q", id, got, want)
		}
	}
	if got := c.eval("[...document.querySelectorAll('#rule-rows tr')].map(r => r.className)" +
		".join()"); got != ",never" {
		t.Errorf("the rows of the rules have the classes %q", got)
	}
	if c.eval("['#talkers i', '#refusals i'].map(i => getComputedStyle(document.querySelector(i))"+
		".backgroundColor).reduce((a, b) => a === b)") != "false" {
		t.Error("talkers and refusals have one colour")
	}
	// Log events of all ports of a source are one row.
	c.until("page.flows.size", "1")
	c.until("[...document.querySelectorAll('#list .row:not([hidden]) span')].map(s => "+
		"s.textContent).slice(1, 9).join(' ')", "log tcp 10.0.0.1 10.0.0.2:80 100  3 180")

	c.eval("document.getElementById('filter').value = 'deny bogus'")
	c.run(chromedp.Click(chromedp.CSS("#filter-form button")))
	c.until("document.getElementById('flows-note').textContent.trimEnd()",
		"column 6: unknown option \"bogus\"\n    deny bogus\n         ^^^^^\n"+
			"    hint: a filter is like: deny tcp from 192.0.2.7 to me 22")
	// It is still there when the rows are drawn again.
	if got := c.eval("page.draw(); " + text("flows-note")); !strings.Contains(got, "bogus") {
		t.Errorf("what is wrong with the filter went away: %q", got)
	}
	c.click("packet")
	c.press("tcp a -> b\r")
	c.until(text("answer"), "the packet passes, by rule 200: allow\n"+
		"00100  protocol  deny udp\n00150  no        allow in")

	c.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	c.until("document.querySelectorAll('#state-rows td').length > 0 && "+
		"document.documentElement.scrollWidth", "360")
	if got := c.eval("[...document.querySelectorAll('#states td, #states th:not(.num)')].filter(" +
		"d => { const r = document.createRange(); r.selectNodeContents(d); return " +
		"r.getClientRects().length > 1 }).map(d => d.textContent).join()"); got != "" {
		t.Errorf("words in the table of states are broken: %s", got)
	}
	for _, e := range c.complaints() {
		if !strings.Contains(e, "400 (Bad Request)") {
			t.Errorf("the console says %s", e)
		}
	}
}
