// Package page is the web page of a node: the last hour as charts, live flows and refusals with
// their details, a map, top talkers, and rules with their counters. It has an editor to try a
// change in, states by age, and why a packet would be dropped. It changes nothing.
//
// The page is one embedded document that loads nothing. It is served on the node's sockets, to
// clients that may open them, and by `weir page` on the loopback. There any user and any web site
// that a browser visits could send requests, so every request needs a token. Everywhere, requests
// that name a host other than the loopback (DNS rebinding) or come from another origin (cross-site
// requests) are refused.
package page

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed" // the page itself
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/weirnet/weir/observe"
)

//go:embed index.html
var index string

//go:embed page.css
var style string

//go:embed page.js
var base string

//go:embed charts.js
var charts string

//go:embed flow.js
var flowDetails string

//go:embed map.js
var nodeMap string

//go:embed editor.js
var editor string

// uPlot draws the charts: https://github.com/leeoniya/uPlot, version 1.6.32, MIT licence
// (uplot/LICENSE). The files are those of its package, unchanged.

//go:embed uplot/uPlot.iife.min.js
var uplot string

//go:embed uplot/uPlot.min.css
var uplotStyle string

// start begins when all parts of the script are there.
const start = "start();\n"

// asked is what the page requests of the API: all of it only reads.
var asked = []string{"GET /v1/status", "GET /v1/rules", "GET /v1/top", "GET /v1/events",
	"GET /v1/history",
	"GET /v1/pods", "GET /v1/peers", "POST /v1/why", "POST /v1/flow", "POST /v1/preview"}

// New serves the page, and passes what it asks to the API if the token comes with it.
func New(api http.Handler, token string) http.Handler {
	mux := http.NewServeMux()
	Handle(mux)
	guarded := withToken(api, token)
	for _, pattern := range asked {
		mux.Handle(pattern, guarded)
	}
	return RefuseCrossOrigin(mux)
}

// Handle puts the page into a mux. It is one document, so that it takes one request: style and
// script stand in it, and the policy lets exactly these two run.
func Handle(mux *http.ServeMux) {
	document, policy := assemble()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		w.Write(document)
	})
}

// assemble puts style and script where the document names them, and makes the policy for it.
func assemble() (document []byte, policy string) {
	put := func(line, open, content, end string) (hash string) {
		sum := sha256.Sum256([]byte(content))
		document = bytes.Replace(document, []byte(line), []byte(open+content+end), 1)
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	document = []byte(index)
	styleHash := put(`<link rel="stylesheet" href="page.css">`, "<style>", uplotStyle+style,
		"</style>")
	scriptHash := put(`<script src="page.js" type="module"></script>`, `<script type="module">`,
		uplot+base+flowDetails+charts+nodeMap+editor+start, "</script>")
	return document, "default-src 'none'; script-src " + scriptHash + "; style-src " + styleHash +
		"; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
}

// RefuseCrossOrigin refuses what a browser was tricked into: requests to the node under a name that
// a foreign DNS server resolves (DNS rebinding), and requests from another site's page.
func RefuseCrossOrigin(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !observe.NamesLoopback(r.Host) {
			http.Error(w, "unknown host name: use localhost", http.StatusForbidden)
			return
		}
		if crossOrigin(r) {
			http.Error(w, "requests from other sites are refused", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var protection = http.NewCrossOriginProtection()

// crossOrigin reports whether another site sent a request. The standard library lets those pass
// that change nothing; here reading is what is protected.
func crossOrigin(r *http.Request) bool {
	asked := *r
	asked.Method = http.MethodPost
	return protection.Check(&asked) != nil
}

// withToken lets requests through that carry the token. Hashes are compared, so that the time
// reveals nothing.
func withToken(next http.Handler, token string) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(bearer))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			http.Error(w, "the token is missing or wrong: open the address that weir page printed",
				http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}
