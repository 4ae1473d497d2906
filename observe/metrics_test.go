package observe

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

func scrape(t *testing.T, h http.Handler) (code int, text string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Code, w.Body.String()
}

func TestMetricsAsText(t *testing.T) {
	m := Metric{Name: "weir_x_total", Help: "What x did:\nboth \\ kinds.", Type: Counter}
	m.Add(3)
	m.Add(1<<53-1, "rule", "100", "why", "a\"b\\c\nd\xff")
	_, got := scrape(t, MetricsHandler(func() ([]Metric, error) {
		return []Metric{m, {Name: "weir_empty", Help: "Nothing.", Type: Gauge},
			NewGauge("weir_y", "How y is.", -0.5)}, nil
	}))
	want := `# HELP weir_x_total What x did:\nboth \\ kinds.
# TYPE weir_x_total counter
weir_x_total 3
weir_x_total{rule="100",why="a\"b\\c\nd?"} 9.007199254740991e+15
# HELP weir_y How y is.
# TYPE weir_y gauge
weir_y -0.5
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if code, text := scrape(t, MetricsHandler(func() ([]Metric, error) {
		return nil, errors.New("no engine")
	})); code != 500 || !strings.Contains(text, "no engine") {
		t.Errorf("an error is answered %d %s", code, text)
	}
}

// TestScrapesWalkOnce: for any number of clients, the states are walked once at a time and once in
// a second.
func TestScrapesWalkOnce(t *testing.T) {
	var walks, under atomic.Int32
	now := time.Unix(1700000000, 0)
	var clock atomic.Pointer[time.Time]
	clock.Store(&now)
	s := &scraped{now: func() time.Time { return *clock.Load() }, read: func() ([]Metric, error) {
		if under.Add(1) > 1 {
			t.Error("two walks at once")
		}
		time.Sleep(5 * time.Millisecond)
		under.Add(-1)
		return []Metric{NewGauge("x", "X.", int(walks.Add(1)))}, nil
	}}
	all := func() {
		var askers sync.WaitGroup
		for range 20 {
			askers.Go(func() {
				if _, err := s.Gather(); err != nil {
					t.Error(err)
				}
			})
		}
		askers.Wait()
	}
	all()
	if n := walks.Load(); n != 1 {
		t.Errorf("%d walks for scrapes of one moment", n)
	}
	later := now.Add(scrapeLife)
	clock.Store(&later)
	all()
	if n := walks.Load(); n != 2 {
		t.Errorf("%d walks after a second", n)
	}
}

func serving(t *testing.T) (address string) {
	t.Helper()
	for try := 0; ; try++ {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		address = l.Addr().String()
		l.Close()
		s, err := ServeMetrics(address, func() ([]Metric, error) {
			return []Metric{NewGauge("x", "X.", 1)}, nil
		}, make(chan error, 1))
		if err == nil {
			t.Cleanup(func() { s.Close() })
			return address
		}
		// Another process may have got the port meanwhile.
		if !errors.Is(err, syscall.EADDRINUSE) || try == 20 {
			t.Fatal(err)
		}
	}
}

// TestMetricsHosts: over the loopback, a name that DNS may have pointed there is refused.
func TestMetricsHosts(t *testing.T) {
	address := serving(t)
	_, port, _ := net.SplitHostPort(address)
	for host, want := range map[string]int{"127.0.0.1:" + port: 200, "localhost:" + port: 200,
		"localhost": 200, "[::1]:" + port: 200, "127.9.9.9": 200,
		"attacker.example": 403, "attacker.example:" + port: 403, "127.0.0.1.attacker.example": 403,
		"weir": 403, "10.0.0.1": 403} {
		r, err := http.NewRequest("GET", "http://"+address+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		w, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		w.Body.Close()
		if w.StatusCode != want {
			t.Errorf("%s: %d, want %d", host, w.StatusCode, want)
		}
	}
}

// TestMetricsTakeFewDescriptors: a client that keeps its connections open gets a bounded number,
// and these end.
func TestMetricsTakeFewDescriptors(t *testing.T) {
	address := serving(t)
	var answered atomic.Int32
	var askers sync.WaitGroup
	var all []net.Conn
	for range 3 * scrapeConns {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
		defer c.Close()
		// and the connection stays
		fmt.Fprintf(c, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
		askers.Go(func() {
			if _, err := io.ReadFull(c, make([]byte, 12)); err == nil {
				answered.Add(1)
			}
		})
	}
	nstest.Eventually(t, "some are answered", func() bool { return answered.Load() > 0 })
	for _, c := range all {
		c.SetReadDeadline(time.Now().Add(2 * time.Second))
	}
	askers.Wait()
	if n := answered.Load(); n > scrapeConns {
		t.Errorf("%d connections are served at a time, want at most %d", n, scrapeConns)
	}
}
