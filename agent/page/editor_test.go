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

// preview answers as a node does: a change with "alow" has a mistake.
func (n *node) preview(w http.ResponseWriter, r *http.Request) any {
	var c api.RuleChange
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return api.Error{Version: 1, Message: err.Error()}
	}
	if n.changes != nil {
		n.changes <- c
	}
	if strings.Contains(c.Text, "alow") {
		return api.Preview{Mistakes: []api.Mistake{{Line: 1, Column: 9, Text: c.Text,
			Message: `"alow" is not an action`, Hint: "did you mean allow?"}}}
	}
	now := api.Verdict{Passed: true, Rule: 100, Text: "allow tcp from any to me 80", Reason: "rule"}
	then := api.Verdict{Rule: 90, Text: "deny tcp from 203.0.113.0/24 to me 80", Reason: "rule"}
	a := api.Preview{Fine: true, Command: "weir fw " + c.Text,
		Added: []api.Rule{{Number: 90, Text: "deny tcp from 203.0.113.0/24 to me 80 // " +
			n.name("flood")}},
		Removed: []api.Rule{}, Warnings: []string{"rule 90: table " + n.name("bad") + " is empty"}}
	if c.Replay != "" {
		a.Replay = &api.Replay{From: time.Unix(hourBegins, 0), Flows: 120, Same: 100, Refused: 17,
			Passed: 2, Other: 1, Skipped: 3, LeftOut: 4, Changes: []api.ChangedFlow{{Proto: "tcp",
				Src: "203.0.113.9", Dst: "10.88.0.3", DstName: "pod:web", Port: 80, Flows: 17,
				Now: now, Then: then}, {Proto: "udp", Src: "203.0.113.10", Dst: "fd00::1", Port: 53,
				Flows: 2, Now: then, Then: now}}}
	}
	return a
}

// TestLongEditorInBrowser: what is typed is checked, Enter with Ctrl replays the last minutes too,
// a mistake stands with its place, and the page prints the command. It asks for nothing that
// changes anything.
func TestLongEditorInBrowser(t *testing.T) {
	c := newChromium(t)
	n := &node{filters: make(chan string, 10), changes: make(chan api.RuleChange, 20)}
	paths := make(chan string, 1000)
	page := New(n, token)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths <- r.Method + " " + r.URL.Path
		page.ServeHTTP(w, r)
	}))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1000, 800), chromedp.Navigate(s.URL+"/#"+token))
	c.until("document.querySelectorAll('#rule-rows button').length", "1")
	c.click("change")
	c.press("add 90 alow tcp")
	said := "document.getElementById('preview').innerText"
	c.until(said+".includes('did you mean allow?')", "true")
	if text := c.eval(said); !strings.Contains(text, "1:9: \"alow\" is not an action\n    add 90 "+
		"alow tcp\n            ^") {
		t.Errorf("a mistake is shown as\n%s", text)
	}
	c.eval("document.getElementById('change').value = ''")
	c.press("add 90 deny tcp")
	c.until(said+".includes('weir fw add 90 deny tcp')", "true")
	for len(n.changes) > 0 {
		if change := <-n.changes; change.Replay != "" {
			t.Errorf("typing asks for a replay: %+v", change)
		}
	}
	c.eval("document.getElementById('change').dispatchEvent(new KeyboardEvent('keydown', " +
		"{key: 'Enter', ctrlKey: true}))")
	if change := <-n.changes; change.Replay != "5m" || change.Text != "add 90 deny tcp" {
		t.Errorf("asked for %+v", change)
	}
	c.until(said+".includes('17 would be refused')", "true")
	text := c.eval(said)
	for _, want := range []string{"120 flows since", "2 would pass", "1 would match another rule",
		"4 were left out", "tcp 203.0.113.9 > pod:web:80", "refused by 90 deny tcp from 203",
		"+ 00090 deny tcp", "is empty", "Run this as root", "<img src=x"} {
		if !strings.Contains(text, want) {
			t.Errorf("the preview lacks %q:\n%s", want, text)
		}
	}
	if got := c.eval("String(window.owned) + document.querySelectorAll('main img').length"); got !=
		"undefined0" || strings.ContainsAny(text, "\u202e\x1b") {
		t.Errorf("a name was obeyed: %s", got)
	}
	// A rule of the list comes into the editor.
	c.eval("document.getElementById('change').value = ''")
	c.run(chromedp.Click(chromedp.CSS("#rule-rows button")))
	if got := c.eval("document.getElementById('change').value"); !strings.HasPrefix(got,
		"delete 100\nadd 100 allow tcp from any to me 80 // <img") {
		t.Errorf("the editor holds %q", got)
	}
	c.run(chromedp.EmulateViewport(360, 740, chromedp.EmulateMobile))
	c.until("document.documentElement.scrollWidth", "360")
	if all := c.complaints(); len(all) > 0 {
		t.Errorf("the console says %v", all)
	}
	for len(paths) > 0 {
		if p := <-paths; strings.HasPrefix(p, "POST") && p != "POST /v1/preview" ||
			!strings.HasPrefix(p, "POST") && !strings.HasPrefix(p, "GET") {
			t.Errorf("the page asked for %s", p)
		}
	}
}
