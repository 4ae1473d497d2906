package page

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
)

// hour is the history of a node, with a clock of its own: a sample in five seconds.
type hour struct {
	mu    sync.Mutex
	agent int // guarded by mu; another one after a restart
	now   int // guarded by mu; samples that were taken
}

const (
	hourBegins = 1700000000
	hourKept   = 720
)

// set sets how many samples an agent has taken.
func (h *hour) set(agent, now int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.agent, h.now = agent, now
}

// history is what the node answers: nine busy rules, one with a hostile text, three pods, and
// refusals in the last five minutes.
func (n *node) history(since int) api.History {
	n.hour.mu.Lock()
	defer n.hour.mu.Unlock()
	end := n.hour.now
	first := min(max(since, end-hourKept, 0), end)
	a := api.History{Version: 1, Began: time.Unix(int64(hourBegins+n.hour.agent), 0).UTC(),
		First: uint64(first), Times: []float64{}, Seconds: []float32{}}
	values := func(at func(i int) float32) []float32 {
		all := []float32{}
		for i := first; i < end; i++ {
			all = append(all, at(i))
		}
		return all
	}
	always := func(v float32) []float32 { return values(func(int) float32 { return v }) }
	for i := first; i < end; i++ {
		a.Times = append(a.Times, float64(hourBegins+5*(i+1)))
		a.Seconds = append(a.Seconds, 5)
	}
	wave := func(of int) []float32 {
		return values(func(i int) float32 { return float32(of * (1 + i*i%97)) })
	}
	a.Traffic = api.Traffic{BytesIn: wave(6250), BytesOut: wave(20000), PacketsIn: wave(10),
		PacketsOut: wave(20), Dropped: always(20)}
	late := values(func(i int) float32 {
		if i < hourKept-60 {
			return 0
		}
		return float32(20 + 10*(i%7))
	})
	a.Dropped = []api.ReasonHistory{{Reason: "rule", Packets: late},
		{Reason: "tcp-window", Packets: always(1)}}
	for i := range 9 {
		text := fmt.Sprintf("allow tcp from any to me %d", 8000+i)
		if i == 8 {
			text = "deny ip from any to any // " + hostile
		}
		a.Rules = append(a.Rules, api.RuleHistory{Number: uint16(100 * (i + 1)), Text: text,
			Packets: wave(i + 1), Bytes: wave(500 * (i + 1))})
	}
	for i, name := range []string{"web", "db", hostile} {
		a.Pods = append(a.Pods, api.PodHistory{Container: fmt.Sprint("c", i), IfName: "eth0",
			Name: name, BytesIn: wave(100 * (i + 1)), BytesOut: wave(300 * (i + 1)),
			Packets: wave(3), Dropped: always(0)})
	}
	if n.calm {
		calm(&a, end)
	}
	a.Others = api.Others{RulePackets: always(0), PodBytes: always(0)}
	return a
}

// drag draws the mouse over an element, from one part of its width to another one.
func (c *chromium) drag(selector string, from, to float64) {
	c.t.Helper()
	c.eval(fmt.Sprintf("document.querySelector(%q).scrollIntoView({block: 'center'})", selector))
	side := func(what string) float64 {
		return number(c.t, c.eval(fmt.Sprintf(
			"document.querySelector(%q).getBoundingClientRect().%s", selector, what)))
	}
	x, width, y := side("left"), side("width"), side("top")+side("height")/2
	for _, step := range []struct {
		kind input.DispatchMouseEventType
		at   float64
	}{{"mouseMoved", from}, {"mousePressed", from}, {"mouseMoved", (from + to) / 2},
		{"mouseMoved", to}, {"mouseReleased", to}} {
		event := input.DispatchMouseEventParams{Type: step.kind, X: x + width*step.at, Y: y,
			Button: input.MouseButtonLeft, Buttons: 1, ClickCount: 1}
		if _, err := chromedp.Call(c.ctx, input.DispatchMouseEvent, event); err != nil {
			c.t.Fatal(err)
		}
	}
}

// chartSpans returns how many seconds each of the charts shows.
func (c *chromium) chartSpans() string {
	c.t.Helper()
	return c.eval("page.charts.map(c => Math.round(c.plot.scales.x.max - " +
		"c.plot.scales.x.min)).join()")
}

// TestLongHistoryInBrowser: an hour of samples is four charts, without delay. Buttons and the mouse
// choose the time, and all charts show the same one. What is new comes alone, and a restarted agent
// begins again. Text of rules and names of pods stay text.
func TestLongHistoryInBrowser(t *testing.T) {
	c := newChromium(t)
	n := &node{filters: make(chan string, 10)}
	n.hour.set(1, 1000)
	s := httptest.NewServer(New(n, token))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1400, 900), chromedp.Navigate(s.URL+"/#"+token))
	c.until("page.past.times.length", "720")
	c.until("page.charts.map(c => c.plot ? c.plot.series.length - 1 : 0).join()", "2,2,6,3")
	c.chartsOfTheHour()
	c.chooseTime(n)

	// One rule alone.
	c.eval("document.getElementById('pick-rule').value = [...document.getElementById(" +
		"'pick-rule').options].find(o => o.text.startsWith('100 ')).value; " +
		"document.getElementById('pick-rule').dispatchEvent(new Event('change'))")
	if got := c.eval("page.charts[2].plot.series.slice(1).map(s => s.label).join()"); got !=
		"100 allow tcp from any to me 8000" {
		t.Errorf("the chart of one rule shows %s", got)
	}

	// A restart of the agent.
	n.hour.set(2, 10)
	c.eval("page.fetchHistory()")
	c.until("page.past.next + ' ' + page.past.times.length", "10 10")
	if all := c.complaints(); len(all) > 0 {
		t.Errorf("the console says %v", all)
	}
}

// chartsOfTheHour: the charts show what was counted in the hour, drawn at once, and obey no name.
func (c *chromium) chartsOfTheHour() {
	t := c.t
	if got := c.chartSpans(); got != "3600,3600,3600,3600" {
		t.Errorf("the charts show %s seconds", got)
	}
	most := c.repeats(func() {
		c.eval("for (const c of page.charts) c.names = ''; page.drawCharts()")
	})
	if most < 720 || most > 100*720 {
		t.Errorf("the charts of 720 samples cause %d repeats", most)
	}
	// bytes in the last sample, as bits per second
	if got, want := c.eval("page.charts[0].plot.data[1].at(-1)"),
		fmt.Sprint(6250*(1+999*999%97)*8/5); got != want {
		t.Errorf("the traffic in is %s bit/s, want %s", got, want)
	}
	if got := c.eval("String(window.owned) + document.querySelectorAll('main img').length"); got !=
		"undefined0" {
		t.Errorf("a name was obeyed: %s", got)
	}
	if text := c.eval("document.getElementById('charts').innerText"); !strings.Contains(text,
		"<img src=x") || strings.ContainsAny(text, "\u202e\x1b") {
		t.Errorf("the charts show %q", text)
	}
}

// chooseTime chooses the time by the buttons and by the mouse, and goes back to the whole hour.
// Three samples come meanwhile.
func (c *chromium) chooseTime(n *node) {
	t := c.t
	c.run(chromedp.Click(chromedp.CSS("#spans button[value='300']")))
	if got := c.chartSpans(); got != "300,300,300,300" {
		t.Errorf("after the button the charts show %s seconds", got)
	}
	c.run(chromedp.Click(chromedp.CSS("#spans button[value='3600']")))
	c.drag("#chart-refused .u-over", 0.25, 0.5)
	if got := number(t, strings.SplitN(c.chartSpans(), ",", 2)[0]); got < 850 || got > 950 {
		t.Errorf("a quarter of an hour is %v seconds", got)
	}
	if all := strings.Split(c.chartSpans(), ","); all[0] != all[3] {
		t.Errorf("the charts differ: %v", all)
	}
	c.eval("page.past.next") // what is new does not move what is looked at
	before := c.eval("page.charts[0].plot.scales.x.min")
	n.hour.set(1, 1003)
	c.eval("page.fetchHistory()")
	c.until("page.past.next", "1003")
	if got := c.eval("page.charts[0].plot.scales.x.min"); got != before {
		t.Errorf("the chart moved from %s to %s", before, got)
	}
	c.eval("document.querySelector('#chart-traffic .u-over').dispatchEvent(" +
		"new MouseEvent('dblclick'))")
	if got := c.chartSpans(); got != "3600,3600,3600,3600" {
		t.Errorf("after a double click the charts show %s seconds", got)
	}
	if got := c.eval("[page.past.times.length, page.past.times.at(-1), " +
		"[...page.past.columns.values()].every(c => Object.values(c.values).every(" +
		"v => v.length === 720))].join()"); got != fmt.Sprintf("720,%d,true", hourBegins+5*1003) {
		t.Errorf("after three more samples there are %s", got)
	}
}
