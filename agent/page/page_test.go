package page

import (
	"bytes"
	"encoding/json"
	"image"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

const token = "0123456789abcdef0123456789abcdef"

// hostile is a name that no one should be able to set.
const hostile = `<img src=x onerror="window.owned=1"><script>window.owned=1</script>` +
	"\u202e\x1b[2J"

// node answers as a busy node would: many flows, and names and rules chosen by an attacker.
type node struct {
	events  int
	calm    bool // no one attacks: for pictures
	hour    hour
	pods    api.Pods
	peers   api.Peers
	top     *api.Top // nil: a few talkers
	filters chan string
	changes chan api.RuleChange   // nil: not of interest
	flows   chan api.FlowQuestion // nil: not of interest
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer any
	switch r.URL.Path {
	case "/v1/status":
		answer = api.Status{Version: 1, Healthy: true,
			Interfaces: []api.Interface{{Name: n.name("eth0")}},
			Rules:      2, States: 3, StatesMax: 10}
	case "/v1/rules":
		answer = api.Rules{Version: 1, Rules: []api.Rule{
			{Number: 100, Text: "allow tcp from any to me 80 // " + n.name("web"), Packets: 12345,
				Bytes: 1 << 30}, {Number: 200, Text: "deny udp from any to any"}}}
	case "/v1/top":
		if n.top != nil {
			answer = *n.top
			break
		}
		answer = api.Top{Version: 1, Refused: api.Count{Packets: 77},
			Talkers: []api.Talker{{Proto: "tcp", Src: "10.0.0.1", SrcName: n.name("pod:web"),
				Dst:  "fd00::1",
				Port: 80, Rate: 1e6, Bytes: 5e6, States: 2}},
			Refusals: []api.Refusals{{Proto: "udp", Src: "10.0.0.9", Dst: "10.0.0.1", Port: 53,
				Packets: 70, Rule: 200, Reason: "rule"}},
			Ages: []api.Age{{Proto: "tcp", Phase: "established", Counts: []int{1, 2, 3, 4, 5, 6}}}}
	case "/v1/why":
		answer = api.Explanation{Version: 1, Passed: false, Rule: 200, Text: hostile,
			Reason: "rule", Tries: []api.Try{{Rule: 100, Text: "allow", Outcome: "protocol"}}}
	case "/v1/history":
		since, err := strconv.Atoi(r.URL.Query().Get("since"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer = n.history(since)
	case "/v1/preview":
		answer = n.preview(w, r)
	case "/v1/pods":
		answer = n.pods
	case "/v1/peers":
		answer = n.peers
	case "/v1/flow":
		answer = n.flow(w, r)
	case "/v1/events":
		n.stream(w, r)
		return
	}
	json.NewEncoder(w).Encode(answer)
}

// name returns a name that an attacker has chosen, or a plain one.
func (n *node) name(plain string) string {
	if n.calm {
		return plain
	}
	return hostile
}

// asked waits until the page asks for a filter.
func (n *node) asked(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-n.filters:
		if got != want {
			t.Errorf("the node was asked for %q, want %q", got, want)
		}
	case <-time.After(5 * time.Minute):
		t.Fatalf("the node was not asked for %q", want)
	}
}

func (n *node) stream(w http.ResponseWriter, r *http.Request) {
	filter := r.URL.Query().Get("filter")
	if _, err := observe.ParseFilter(filter, nil); err != nil {
		api.WriteError(w, http.StatusBadRequest, err)
		return
	}
	select {
	case n.filters <- filter:
	default: // more are not counted
	}
	for i := range n.events {
		e := observe.Event{At: time.Unix(1700000000, 0), Recv: "eth0", From: n.name("pod:web")}
		e.Event = firewall.Event{Kind: firewall.EventStart, Proto: 6, Length: 60,
			Verdict: firewall.Verdict{Pass: true, Rule: 100},
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}),
				4000), Dst: netip.MustParseAddrPort("[fd00::1]:80")}
		if i%10 == 0 {
			e.Kind, e.Verdict = firewall.EventDrop,
				firewall.Verdict{Rule: 200, Reason: firewall.ReasonTCPWindow}
		}
		w.Write(e.AppendJSON(nil))
	}
	http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// TestPageInBrowser looks at the page with a real browser. The page loads at once, shows 10,000
// flows without stutter, and obeys keys and clicks. It fits a telephone and a dark screen, and runs
// nothing that is in a name.
func TestPageInBrowser(t *testing.T) {
	c := newChromium(t)
	n := &node{events: 12000, filters: make(chan string, 10)}
	s := httptest.NewServer(New(n, token))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1000, 800), chromedp.Navigate(s.URL+"/#"+token))
	c.until("document.readyState", "complete")
	n.asked(t, "")
	c.loadAgain(n)
	if hash := c.eval("location.hash"); hash != "" {
		t.Errorf("the token stays in the address: %s", hash)
	}
	c.redrawFlows()
	c.hostileNames()
	c.useKeys(n)
	c.otherScreens()
	wrongFilter := false
	for _, e := range c.complaints() {
		if strings.Contains(e, "400 (Bad Request)") {
			wrongFilter = true
			continue
		}
		t.Errorf("the console says %s", e)
	}
	if !wrongFilter {
		t.Error("the console does not say that the filter was wrong: this check is blind")
	}
}

// loadAgain loads the page in a browser that the first load has warmed up, and waits for all flows.
func (c *chromium) loadAgain(n *node) {
	t := c.t
	t.Helper()
	c.eval("window.old = true")
	most := c.repeats(func() {
		c.run(chromedp.Reload())
		c.until("String(window.old) + document.readyState", "undefinedcomplete")
		n.asked(t, "")
		c.until("page.flows.size", "10000")
	})
	// Few draws fall into the load of a quick machine, more into that of a slow one.
	if most < n.events || most > n.events*n.events/10 {
		t.Errorf("%d events cause %d repeats", n.events, most)
	}
	c.until("document.getElementById('status').textContent.includes('77 packets refused')", "true")
}

// redrawFlows redraws everything in sight, with 10,000 rows behind it.
func (c *chromium) redrawFlows() {
	t := c.t
	t.Helper()
	most := c.repeats(func() {
		c.eval("(() => { for (let i = 0; i < 20; i++) { document.getElementById('list').scrollTop = " +
			"i * 9000; page.draw(); document.body.offsetHeight } })()")
	})
	if most < 20 || most > 20*1000 {
		t.Errorf("20 redraws with 10,000 flows cause %d repeats", most)
	}
	if rows := number(t, c.eval("document.querySelectorAll('#list .row').length")); rows < 15 ||
		rows > 60 {
		t.Errorf("%v rows are in the document, want those in sight", rows)
	}
}

// hostileNames: nothing that a name says happens, and it is there to be read.
func (c *chromium) hostileNames() {
	t := c.t
	if got := c.eval("String(window.owned) + document.querySelectorAll('main img, main " +
		"script').length"); got != "undefined0" {
		t.Errorf("a name was obeyed: %s", got)
	}
	c.eval("document.getElementById('list').scrollTop = 0; page.draw()")
	text := c.eval("document.body.innerText")
	for _, want := range []string{"<img src=x", `\u{202e}\u{1b}[2J`, "DROP", "tcp-window", "12345",
		"never matched", "udp 10.0.0.9 > 10.0.0.1:53"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not show %q", want)
		}
	}
	if strings.ContainsAny(text, "\u202e\x1b") {
		t.Error("the page shows characters that turn or hide text")
	}
	if got := c.eval("[...document.querySelectorAll('#rule-rows tr')].map(r => r.className).join()"); got != ",never" {
		t.Errorf("rules that never matched are not marked: %q", got)
	}
}

// useKeys: / goes to the filter, Enter applies it; what is wrong is said.
func (c *chromium) useKeys(n *node) {
	c.t.Helper()
	c.eval("document.activeElement.blur()")
	c.press("/deny tcp\r")
	n.asked(c.t, "deny tcp")
	c.eval("document.getElementById('filter').value = 'nonsense from'")
	c.press("\r")
	c.until("document.getElementById('flows-note').textContent.includes('nonsense')", "true")
	c.click("pause")
	c.until("document.getElementById('pause').getAttribute('aria-pressed')", "true")
	c.click("packet")
	c.press("tcp a -> b\r")
	c.until("document.getElementById('answer').textContent.startsWith('the packet is DROPPED, by rule 200: "+
		"<img')", "true")
}

// otherScreens shows the page on a dark screen and on a telephone.
func (c *chromium) otherScreens() {
	t := c.t
	light := c.screenshot()
	if _, err := chromedp.Call(c.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}},
	}); err != nil {
		t.Fatal(err)
	}
	dark := c.screenshot()
	if b, d := brightness(t, light), brightness(t, dark); b < 180 || d > 80 {
		t.Errorf("the light page has brightness %.0f, the dark one %.0f", b, d)
	}
	c.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	if got := c.eval("document.documentElement.scrollWidth"); got != "360" {
		t.Errorf("the page is %s pixels wide on a telephone of 360", got)
	}
}

// brightness is the mean of a picture, 0 to 255.
func brightness(t *testing.T, picture []byte) float64 {
	t.Helper()
	var img image.Image
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	sum, b := 0.0, img.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			r, g, b, _ := img.At(x, y).RGBA()
			sum += float64(r+g+b) / 3 / 257
		}
	}
	return sum / float64(b.Dx()*b.Dy())
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestGuards: without the token, under a foreign name, from a foreign site, or for what changes
// something, there is no answer.
func TestGuards(t *testing.T) {
	reached := 0
	h := New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached++ }), token)
	for _, c := range []struct {
		method, path, host string
		header             string
		want               int
	}{
		{"GET", "/", "127.0.0.1:8080", "", 200},
		{"GET", "/", "localhost:8080", "", 200},
		{"GET", "/", "[::1]:8080", "", 200},
		{"GET", "/", "127.0.0.2:8080", "", 200},
		{"GET", "/page.go", "[::1]:8080", "", 404},
		{"GET", "/", "evil.example:8080", "", 403},
		{"GET", "/", "weir:8080", "", 403},
		{"GET", "/v1/status", "weir", "Authorization: Bearer " + token, 403},
		{"GET", "/", "localhost.", "", 403},
		{"GET", "/", "127.0.0.1.evil.example", "", 403},
		{"GET", "/", "10.0.0.1:8080", "", 403},
		{"GET", "/v1/status", "127.0.0.1:8080", "", 401},
		{"GET", "/v1/status", "127.0.0.1:8080", "Authorization: Bearer " + token[1:], 401},
		{"GET", "/v1/status", "127.0.0.1:8080", "Authorization: Bearer " + token, 200},
		{"GET", "/v1/status", "evil.example", "Authorization: Bearer " + token, 403},
		{"POST", "/v1/why", "127.0.0.1:8080", "Authorization: Bearer " + token, 200},
		{"POST", "/v1/flow", "127.0.0.1:8080", "Authorization: Bearer " + token, 200},
		{"POST", "/v1/preview", "127.0.0.1:8080", "Authorization: Bearer " + token, 200},
		{"GET", "/v1/history", "127.0.0.1:8080", "Authorization: Bearer " + token, 200},
		{"POST", "/v1/do", "127.0.0.1:8080", "Authorization: Bearer " + token, 404},
		{"POST", "/v1/down", "127.0.0.1:8080", "Authorization: Bearer " + token, 404},
		{"GET", "/", "127.0.0.1:8080", "Origin: http://evil.example", 403},
		{"GET", "/", "127.0.0.1:8080", "Origin: http://127.0.0.1:9090", 403},
		{"GET", "/", "127.0.0.1:8080", "Origin: null", 403},
		{"GET", "/", "127.0.0.1:8080", "Origin: http://127.0.0.1:8080", 200},
		{"GET", "/", "127.0.0.1:8080", "Sec-Fetch-Site: cross-site", 403},
		{"GET", "/", "127.0.0.1:8080", "Sec-Fetch-Site: same-site", 403},
		{"GET", "/", "127.0.0.1:8080", "Sec-Fetch-Site: same-origin", 200},
	} {
		before := reached
		r := httptest.NewRequest(c.method, "http://"+c.host+c.path, nil)
		if name, value, ok := strings.Cut(c.header, ": "); ok {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s %s of %s with %q: status %d, want %d", c.method, c.path, c.host, c.header,
				w.Code, c.want)
		}
		if passed := reached > before; passed != (c.want == 200 &&
			strings.HasPrefix(c.path, "/v1/")) {
			t.Errorf("%s %s of %s with %q reached the API: %v", c.method, c.path, c.host, c.header,
				passed)
		}
	}
}

func TestPolicyAllowsNothingFromElsewhere(t *testing.T) {
	w := httptest.NewRecorder()
	New(nil, token).ServeHTTP(w, httptest.NewRequest("GET", "http://127.0.0.1/", nil))
	csp := w.Header().Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'sha256-", "style-src 'sha256-",
		"frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"} {
		if !strings.Contains(csp, want) {
			t.Errorf("%q lacks %q", csp, want)
		}
	}
	if strings.Contains(csp, "unsafe") || strings.Contains(csp, "http") ||
		strings.Contains(csp, "*") {
		t.Errorf("%q allows too much", csp)
	}
	text := w.Body.String()
	// its only address is its own, in a comment
	for _, library := range []string{uplot, uplotStyle} {
		if !strings.Contains(text, library) {
			t.Error("the page holds no charts")
		}
		text = strings.Replace(text, library, strings.Replace(library,
			"https://github.com/leeoniya/uPlot", "", 1), 1)
	}
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write",
		"eval(", "https://", "//cdn", " style=", "onclick", "src=", "href=\"page"} {
		if strings.Contains(text, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
}
