// Package page is the page on which a browser looks at a node: live conversations and refusals, who talks, rules and what they
// count, states by age, and why a packet would be dropped. It changes nothing.
//
// The page is three embedded files that load nothing from elsewhere. It is served on the node's socket, for whoever may open that
// (ssh -L 8080:/run/weir/weir.sock), and by `weir page` on the loopback, where any user and any web site that a browser visits could ask: there
// every question needs a token. Everywhere, requests that name a host other than the loopback (DNS rebinding) or come from another
// origin (cross-site requests) are refused.
package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"embed"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

//go:embed index.html page.js page.css
var files embed.FS

// asked is what the page asks of the API: all of it reads only.
var asked = []string{"GET /v1/status", "GET /v1/rules", "GET /v1/top", "GET /v1/events", "POST /v1/why"}

// New serves the page, and passes what it asks to the API if the token comes with it.
func New(api http.Handler, token string) http.Handler {
	mux := http.NewServeMux()
	Files(mux)
	guarded := withToken(api, token)
	for _, pattern := range asked {
		mux.Handle(pattern, guarded)
	}
	return Guard(mux)
}

// Files puts the page's files into a mux.
func Files(mux *http.ServeMux) {
	server := http.FileServerFS(files)
	for _, path := range []string{"/{$}", "/page.js", "/page.css"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "+
				"base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("X-Frame-Options", "DENY")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Cross-Origin-Resource-Policy", "same-origin")
			h.Set("Cache-Control", "no-store")
			server.ServeHTTP(w, r)
		})
	}
}

// Guard refuses what a browser was talked into: requests to the node under a name that somebody else's DNS may answer, and requests that
// another site's page sends.
func Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			http.Error(w, "this host is not known here", http.StatusForbidden)
			return
		}
		if !sameSite(r) {
			http.Error(w, "requests from other sites are refused", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local says whether a Host header means this machine. "weir" is what clients of the socket say.
func local(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
	if name == "localhost" || name == "weir" {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && a.IsLoopback()
}

// sameSite says whether a request comes from the page itself or from no browser.
func sameSite(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
	default:
		return false
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && u.Host == r.Host
}

// withToken lets requests through that carry the token. Hashes are compared, so that the time tells nothing.
func withToken(next http.Handler, token string) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(bearer))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "the token is missing or wrong: open the address that weir page printed", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
