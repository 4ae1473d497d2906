package observe

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// MetricsHandler answers a scrape with what read returns.
func MetricsHandler(read func() ([]Metric, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		all, err := read()
		var text bytes.Buffer
		if err == nil {
			err = WriteMetrics(&text, all)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", ContentType)
		w.Write(text.Bytes())
	})
}

// ServeMetrics answers scrapes at /metrics of an address, and nothing else, until the server is closed. An error that ends it before
// goes to served.
func ServeMetrics(address string, read func() ([]Metric, error), served chan<- error) (*http.Server, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", MetricsHandler(read))
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			served <- err
		}
	}()
	return s, nil
}
