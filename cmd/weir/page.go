package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/page"
	"github.com/weirnet/weir/eyeballs"
)

func pageCommand(c *call) action {
	address := c.String("listen", "127.0.0.1:0",
		"serve on this loopback `ADDRESS` and port; port 0 picks one")
	return func() error {
		if a, err := netip.ParseAddrPort(*address); err != nil || !a.Addr().IsLoopback() {
			return c.wrong("--listen %q is not a loopback address with a port, like 127.0.0.1:8080",
				*address)
		}
		var s api.Status
		if err := c.get("/v1/status", &s); err != nil {
			return err
		}
		var secret [16]byte
		rand.Read(secret[:])
		token := hex.EncodeToString(secret[:])
		l, err := net.Listen("tcp", *address)
		if err != nil {
			return c.failed(err)
		}
		server := newPageServer(page.New(proves(c.proxy()), token))
		server.BaseContext = func(net.Listener) context.Context { return c.ctx }
		defer server.Close()
		defer context.AfterFunc(c.ctx, func() { server.Close() })()
		fmt.Fprintf(c.out, "http://%s/#%s\n", l.Addr(), token)
		fmt.Fprintln(c.stderr,
			"Open this address in a browser of this machine; the page is read-only. Ctrl-C ends "+
				"it.")
		l = &pageConns{Listener: l, most: mostPageConns}
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return c.failed(err)
		}
		return nil
	}
}

// newPageServer serves the page to each user of the host, who can connect.
func newPageServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ConnContext: withPageConn}
}

// mostPageConns is how many connections there may be to the page: they are descriptors.
const mostPageConns = 64

// proxy passes requests on to the node's socket, without the headers in which the browser
// identifies itself or a site.
func (c *call) proxy() http.Handler {
	socket := c.paths().ReadSocket() // no request on the port can change anything
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "localhost", "localhost"
			for _, h := range []string{"Authorization", "Origin", "Referer", "Cookie",
				"Sec-Fetch-Site"} {
				r.Out.Header.Del(h)
			}
		},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn,
			error) {
			return new(eyeballs.Dialer).DialContext(ctx, "unix", socket)
		}},
		FlushInterval: -1, // events are sent at once
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			http.Error(w, "the node does not answer: run weir status", http.StatusBadGateway)
		},
	}
}
