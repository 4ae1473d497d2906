package observe

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/net/netutil"
)

// Limits for clients that scrape: anyone who reaches the address can be one.
const (
	// an answer is reused for so long: making one walks all states
	scrapeLife   = time.Second
	scrapeConns  = 64 // connections, which are descriptors of the process
	scrapeAtOnce = 16 // concurrent answers
	scrapeTime   = 10 * time.Second
	scrapeIdle   = 30 * time.Second
)

// MetricsHandler answers a scrape with the metrics that read returns. It calls read once at a time,
// and at most once a second.
func MetricsHandler(read func() ([]Metric, error)) http.Handler {
	return promhttp.HandlerFor(&scraped{read: read, now: time.Now},
		promhttp.HandlerOpts{MaxRequestsInFlight: scrapeAtOnce, Timeout: scrapeTime})
}

// scraped keeps the last answer.
type scraped struct {
	read func() ([]Metric, error)
	now  func() time.Time

	mu   sync.Mutex
	at   time.Time           // guarded by mu; of last
	last []*dto.MetricFamily // guarded by mu; immutable
}

// Gather implements prometheus.Gatherer.
func (s *scraped) Gather() ([]*dto.MetricFamily, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && s.now().Sub(s.at) < scrapeLife {
		return s.last, nil
	}
	all, err := s.read()
	if err != nil {
		return nil, err
	}
	s.last, s.at = families(all), s.now()
	return s.last, nil
}

var _ prometheus.Gatherer = (*scraped)(nil)

// ServeMetrics answers scrapes at /metrics of an address, and nothing else, until the server is
// closed. An error that ends it before goes to served.
func ServeMetrics(address string, read func() ([]Metric, error), served chan<- error) (*http.Server,
	error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", MetricsHandler(read))
	s := &http.Server{Handler: notRebound(mux), ReadTimeout: scrapeTime,
		WriteTimeout: 2 * scrapeTime, IdleTimeout: scrapeIdle, MaxHeaderBytes: 16 << 10}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for Prometheus: %w", err)
	}
	go func() {
		if err := s.Serve(netutil.LimitListener(l, scrapeConns)); !errors.Is(err,
			http.ErrServerClosed) {
			served <- err
		}
	}()
	return s, nil
}

// notRebound refuses requests over the loopback for any other name than the loopback's. A web site
// whose DNS name points there (DNS rebinding) must not read the metrics through a browser of this
// machine.
func notRebound(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
		if at != nil && at.IP.IsLoopback() && !NamesLoopback(r.Host) {
			http.Error(w, "unknown host name: use localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// NamesLoopback reports whether a Host header names the loopback in a form that no DNS server
// resolves.
func NamesLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return host == "localhost" || err == nil && a.IsLoopback()
}
