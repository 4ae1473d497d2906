package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestBrowser opens pages with a real browser through the proxy: a page, and what a script in it
// fetches from another host. Only the proxy can resolve the names.
func TestBrowser(t *testing.T) {
	program, err := exec.LookPath("chromium")
	if err != nil {
		if os.Getenv("WEIR_CI") == "1" {
			t.Fatal("NOT TESTED: chromium is missing, and WEIR_CI=1 forbids to skip")
		}
		t.Skip("NOT TESTED: chromium is missing")
	}
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, port, _ := net.SplitHostPort(r.Host)
		scheme := "http"
		if r.TLS != nil {
			scheme = "https"
		}
		switch {
		case r.URL.Path == "/favicon.ico":
			http.NotFound(w, r)
		case host == "data.test":
			w.Header().Set("Access-Control-Allow-Origin", "*")
			io.WriteString(w, "fetched")
		default:
			w.Header().Set("Content-Type", "text/html")
			io.WriteString(w, `<p id=p>waiting</p><script>
fetch("`+scheme+`://data.test:`+port+`/").then(r => r.text()).then(s => {
	const host = location.host.split(":")[0]
	document.getElementById("p").textContent = s + " from " + host
})</script>`)
		}
	})
	plain, secure := httptest.NewServer(page), httptest.NewTLSServer(page)
	defer plain.Close()
	defer secure.Close()
	s := &Server{}
	proxy := start(t, s, "127.0.0.1 web.test data.test\n")
	port := func(s *httptest.Server) string {
		_, p, _ := net.SplitHostPort(s.Listener.Addr().String())
		return p
	}
	for name, tt := range map[string]struct{ proxy, url string }{
		"plain HTTP": {"http://" + proxy, "http://web.test:" + port(plain) + "/"},
		"CONNECT":    {"http://" + proxy, "https://web.test:" + port(secure) + "/"},
		"SOCKS5":     {"socks5://" + proxy, "https://web.test:" + port(secure) + "/"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			home := nstest.TempDir(t)
			before := s.Stats()
			cmd := exec.CommandContext(ctx, program, "--headless", "--no-sandbox", "--disable-gpu",
				"--disable-dev-shm-usage", "--no-first-run",
				"--disable-extensions", "--disable-background-networking",
				"--disable-component-update", "--disable-sync",
				"--ignore-certificate-errors", "--user-data-dir="+home, "--proxy-server="+tt.proxy,
				"--timeout=60000", "--virtual-time-budget=5000", "--dump-dom", tt.url)
			cmd.Env = append(os.Environ(), "HOME="+home)
			cmd.WaitDelay = 30 * time.Second
			out, err := cmd.Output()
			if err != nil || !strings.Contains(string(out), "fetched from web.test") {
				t.Errorf("%v\n%s", err, out)
			}
			after := s.Stats()
			if tt.url[:5] == "http:" && after.Requests-before.Requests < 2 ||
				tt.url[:5] == "https" && after.Connects-before.Connects < 2 {
				t.Errorf("not through the proxy: %+v", after)
			}
		})
	}
}
