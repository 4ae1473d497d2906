package page

import (
	"math"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/weirnet/weir/agent/api"
)

// calm is an hour of a host with a web server, a database and a flood of refused packets.
func calm(a *api.History, end int) {
	wave := func(base, swing, period, phase float64) []float32 {
		all := make([]float32, len(a.Times))
		for i := range all {
			x := float64(end-len(all)+i) / period
			all[i] = float32(5 * math.Max(0, base+swing*math.Sin(x+phase)+swing/3*math.Sin(3.7*x)))
		}
		return all
	}
	flood := make([]float32, len(a.Times))
	for i := range flood {
		if i > 430 && i < 520 {
			flood[i] = float32(5 * 240 * math.Sin(float64(i-430)*math.Pi/90))
		}
	}
	a.Traffic = api.Traffic{BytesIn: wave(4e5, 1.5e5, 50, 0), BytesOut: wave(2.2e6, 9e5, 40, 1),
		PacketsIn: wave(900, 200, 50, 0), PacketsOut: wave(2000, 300, 40, 1), Dropped: flood}
	a.Dropped = []api.ReasonHistory{{Reason: "rule", Packets: flood},
		{Reason: "tcp-window", Packets: wave(6, 5, 30, 2)}}
	a.Rules = []api.RuleHistory{
		{Number: 100, Text: "check-state", Packets: wave(800, 300, 45, 0)},
		{Number: 200, Text: "allow tcp from any to table(app=web) 80,443 setup keep-state",
			Packets: wave(240, 120, 60, 1)},
		{Number: 300, Text: "allow tcp from table(app=web) to table(app=db) 5432 keep-state",
			Packets: wave(120, 60, 25, 2)},
		{Number: 900, Text: "deny ip from any to any", Packets: flood}}
	a.Pods = []api.PodHistory{
		{Container: "c0", IfName: "eth0", Name: "web-1", BytesIn: wave(2e5, 9e4, 50, 0),
			BytesOut: wave(1.2e6, 5e5, 40, 1), Dropped: wave(0, 0, 1, 0)},
		{Container: "c1", IfName: "eth0", Name: "web-2", BytesIn: wave(1e5, 8e4, 35, 2),
			BytesOut: wave(7e5, 4e5, 30, 2), Dropped: wave(0, 0, 1, 0)},
		{Container: "c2", IfName: "eth0", Name: "db", BytesIn: wave(9e4, 3e4, 20, 1),
			BytesOut: wave(3e5, 1e5, 25, 0), Dropped: wave(0, 0, 1, 0)}}
	for i := range a.Rules {
		a.Rules[i].Bytes = a.Rules[i].Packets
	}
	for i := range a.Pods {
		a.Pods[i].Packets = a.Pods[i].BytesIn
	}
}

// TestLongPictures: the pictures of the documentation are there, and small; -update makes them. On
// a wall and on a telephone nothing is cut off, and letters on a wall are larger.
func TestLongPictures(t *testing.T) {
	c := newChromium(t)
	n := &node{events: 40, filters: make(chan string, 10), calm: true}
	n.hour.set(1, 1000)
	neighbourhood(n, 4)
	for i, name := range []string{"db", "web-1", "web-2", "cron"} {
		n.pods.Pods[i].Name = name
	}
	s := httptest.NewServer(New(n, token))
	defer s.CloseClientConnections()
	c.run(chromedp.EmulateViewport(1280, 700), chromedp.Navigate(s.URL+"/#"+token))
	c.until("document.querySelectorAll('#map-svg .node.pod').length", "4")
	c.until("page.charts.map(c => c.plot ? c.plot.series.length - 1 : 0).join()", "2,2,4,3")
	c.picture("hour", "#history")
	c.picture("map", "#map")
	c.eval("document.getElementById('change').value = 'add 150 deny tcp from 203.0.113.0/24 to " +
		"table(app=web)'")
	c.run(chromedp.Click(chromedp.CSS("#change-form button")))
	c.until("document.querySelectorAll('#preview table').length", "1")
	c.picture("editor", "#editor")
	c.run(chromedp.Click(chromedp.CSS("#list .row[data-at='2']")))
	c.until("document.querySelectorAll('#flow-details-body table').length", "2")
	c.picture("flow", "#flow-details")
	c.key("Escape")
	for _, screen := range []struct {
		width, height int64
		letters       string
	}{{360, 740, "14"}, {1920, 1080, "14"}, {2560, 1440, "17.5"}, {3840, 2160, "24.5"}} {
		c.run(chromedp.EmulateViewport(screen.width, screen.height))
		c.until("document.documentElement.scrollWidth + ' ' + parseFloat(getComputedStyle("+
			"document.body).fontSize)", strconv.FormatInt(screen.width, 10)+" "+screen.letters)
	}
	if all := c.complaints(); len(all) > 0 {
		t.Errorf("the console says %v", all)
	}
}
