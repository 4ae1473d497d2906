package page

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
)

// TestTitleTellsWhatIsWrong: in a list of tabs the page says which host it is of and how many
// problems that has, as they come and go. It also says that the node does not answer. A name of a
// host is text.
func TestTitleTellsWhatIsWrong(t *testing.T) {
	c := newChromium(t)
	n := &node{calm: true, filters: make(chan string, 10)}
	var status atomic.Pointer[api.Status]
	say := func(host string, problems ...string) {
		s := api.Status{Version: 1, Host: host, Healthy: len(problems) == 0}
		for _, what := range problems {
			s.Problems = append(s.Problems, api.Problem{What: what})
		}
		status.Store(&s)
	}
	say("web1")
	s := httptest.NewServer(New(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/status" {
			n.ServeHTTP(w, r)
		} else if s := status.Load(); s != nil {
			api.WriteAnswer(w, func() (api.Status, error) { return *s, nil })
		} else {
			http.Error(w, "no node", http.StatusBadGateway)
		}
	}), token))
	defer s.CloseClientConnections()
	c.run(chromedp.Navigate(s.URL + "/#" + token))
	c.until("document.title", "web1 - Weir")
	say("web1", "the disk is full", "the tunnel cannot be opened")
	c.until("document.title", "(2) web1 - Weir")
	status.Store(nil)
	c.until("document.title", "(!) web1 - Weir")
	say("web1", "the disk is full")
	c.until("document.title", "(1) web1 - Weir")
	say("")
	c.until("document.title", "Weir")
	say("a\u202e</title><img src=x onerror=\"window.owned=1\">")
	c.until("document.title",
		`a\u{202e}</title><img src=x onerror="window.owned=1"> - Weir`)
	if got := c.eval("String(window.owned)"); got != "undefined" {
		t.Error("the name of the host was obeyed")
	}
}
