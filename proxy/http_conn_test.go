package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// TestClientThatDoesNotRead: if a client stops reading the answer to a plain request, its
// connection is closed, and so is the one to the server.
func TestClientThatDoesNotRead(t *testing.T) {
	ended := make(chan struct{})
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		for data := make([]byte, 64<<10); ; {
			if _, err := w.Write(data); err != nil {
				return
			}
		}
	}))
	defer origin.Close()
	s := &Server{IdleTimeout: 200 * time.Millisecond}
	c, err := net.Dial("tcp", start(t, s, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "GET %s/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL); err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "the request is there", func() bool { return s.Stats().Requests == 1 })
	nstest.Eventually(t, "the client is closed", func() bool { return s.Stats().Clients == 0 })
	if s.Stats().IdleClosed == 0 {
		t.Error("it is not counted")
	}
	select {
	case <-ended:
	case <-time.After(5 * time.Minute):
		t.Error("the connection to the server is open")
	}
}

// TestClientThatStopsInABody: the connection of a client that does not send the rest of its request
// is closed. A server may wait for the rest, the proxy may have refused the request, or the HTTP
// server may answer it without the proxy's handler.
func TestClientThatStopsInABody(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
	}))
	defer origin.Close()
	s := &Server{IdleTimeout: 200 * time.Millisecond}
	proxy := start(t, s, "")
	for _, line := range []string{"POST " + origin.URL + "/ HTTP/1.1", "POST / HTTP/1.1",
		"OPTIONS * HTTP/1.1", "POST / HTTP/1.1\r\nExpect: x"} {
		for _, head := range []string{"Content-Length: 100\r\n\r\nab",
			"Transfer-Encoding: chunked\r\n\r\n20\r\nab"} {
			before := s.Stats().IdleClosed
			c, err := net.Dial("tcp", proxy)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(c, "%s\r\nHost: x\r\n%s", line, head)
			c.SetReadDeadline(time.Now().Add(5 * time.Minute))
			if _, err := io.Copy(io.Discard, c); isTimeout(err) {
				t.Errorf("%q, %q: the connection is open", line, head)
			}
			if s.Stats().IdleClosed == before {
				t.Errorf("%q, %q: it is not counted", line, head)
			}
			c.Close()
		}
	}
}

// TestClientWithoutPassword: the connection of a client that has sent no password is closed, even
// if it sends requests that are refused, or their bodies.
func TestClientWithoutPassword(t *testing.T) {
	s := &Server{Users: hashed("ann", "secret"), HandshakeTimeout: 200 * time.Millisecond,
		IdleTimeout: time.Hour}
	proxy := start(t, s, "")
	for _, head := range []string{"GET http://x/ HTTP/1.1\r\nHost: x",
		"POST http://x/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nContent-Length: 100",
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: x\r\nContent-Length: 100"} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "%s\r\n\r\n", head)
		c.SetReadDeadline(time.Now().Add(5 * time.Minute))
		if _, err := io.Copy(io.Discard, c); isTimeout(err) {
			t.Errorf("%q: the connection is open", head)
		}
		c.Close()
	}
}

// TestPasswordEndsLimits: the limits also hold for a client without a password that does not read
// the answers. A client that has sent its password may be silent as long as others.
func TestPasswordEndsLimits(t *testing.T) {
	s := &Server{Users: hashed("ann", "secret")}
	s.prepare()
	defer s.Shutdown(context.Background())
	there, here := net.Pipe()
	defer there.Close()
	past := time.Now().Add(-time.Hour)
	w := &httpConn{Conn: here, client: newClient(s, here), clock: newClock(time.Hour),
		loginBy: past}
	if _, err := w.Write([]byte("407")); !isTimeout(err) {
		t.Error(err)
	}
	r := httptest.NewRequest("GET", "/", nil)
	r = r.WithContext(context.WithValue(r.Context(), connKey{}, w))
	s.serveHTTP(httptest.NewRecorder(), r)
	if w.loginBy != past {
		t.Error("no password ends the limits")
	}
	r.Header.Set("Proxy-Authorization", "Basic YW5uOnNlY3JldA==")
	s.serveHTTP(httptest.NewRecorder(), r)
	if !w.loginBy.IsZero() {
		t.Error("the password does not end the limits")
	}
	go io.Copy(io.Discard, there)
	if _, err := w.Write([]byte("200")); err != nil {
		t.Error(err)
	}
}

// TestHeaderLimits: the proxy holds a bounded part of a header, from a client, which may have sent
// no password yet, and from a server.
func TestHeaderLimits(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X", strings.Repeat("a", 2*maxAnswerHeader))
	}))
	defer origin.Close()
	proxy := start(t, &Server{}, "")
	const slop = 4096 // net/http reads this much more
	for request, want := range map[string]int{
		"GET http://x/ HTTP/1.1\r\nHost: x\r\nX: ":            431,
		"GET " + origin.URL + "/ HTTP/1.1\r\nHost: x\r\n\r\n": 502,
	} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(5 * time.Minute))
		if !strings.HasSuffix(request, "\r\n\r\n") {
			request += strings.Repeat("a", maxRequestHeader+slop-len(request))
		}
		io.WriteString(c, request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != want {
			t.Errorf("%.20q: %v %v, want %d", request, resp, err, want)
		}
		c.Close()
	}
}

// TestPlainBytesAreCounted: the bytes of plain requests and of their answers count.
func TestPlainBytesAreCounted(t *testing.T) {
	const up, down = 1 << 16, 1 << 20
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Write(make([]byte, down))
	}))
	defer origin.Close()
	s := &Server{}
	via := &url.URL{Scheme: "http", Host: start(t, s, "")}
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(via)}}
	defer client.CloseIdleConnections()
	resp, err := client.Post(origin.URL, "text/plain", strings.NewReader(strings.Repeat("a", up)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); len(got) != down || err != nil {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	nstest.Eventually(t, "all is counted", func() bool { return s.Stats().BytesRelayed >= up+down })
	if n := s.Stats().BytesRelayed; n > up+down+1<<16 {
		t.Errorf("%d bytes are counted", n)
	}
}

// TestAnswerBeforeTheEndOfABody: a server may answer before it has the whole request. The client
// gets the answer at once, and the server gets the rest.
func TestAnswerBeforeTheEndOfABody(t *testing.T) {
	const half = 1 << 15
	rest := make(chan int64, 1)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.CopyN(io.Discard, r.Body, half)
		w.Write(make([]byte, 1<<20))
		n, _ := io.Copy(io.Discard, r.Body)
		rest <- n
	}))
	defer origin.Close()
	c, err := net.Dial("tcp", start(t, &Server{}, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	fmt.Fprintf(c, "POST %s/ HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", origin.URL, 2*half)
	c.Write(make([]byte, half))
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("no answer before the end of the request: %v", err)
	}
	defer resp.Body.Close()
	if n, err := io.CopyN(io.Discard, resp.Body, 1<<20); err != nil {
		t.Fatalf("%d bytes of the answer, then %v", n, err)
	}
	c.Write(make([]byte, half))
	if n := <-rest; n != half {
		t.Errorf("the server got %d bytes of the rest", n)
	}
	if n, err := io.Copy(io.Discard, resp.Body); n != 0 || err != nil {
		t.Errorf("%d bytes more, %v", n, err)
	}
}

// TestOneServerAtATime: a client of plain requests to many servers holds a connection to the last
// one alone. Otherwise clients would take more descriptors than MaxClients allows for.
func TestOneServerAtATime(t *testing.T) {
	var open atomic.Int64
	proxy := start(t, &Server{}, "")
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	answers := bufio.NewReader(c)
	for range 5 {
		origin := httptest.NewUnstartedServer(http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
		origin.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		origin.Start()
		defer origin.Close()
		for range 2 {
			fmt.Fprintf(c, "GET %s/ HTTP/1.1\r\nHost: x\r\n\r\n", origin.URL)
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(resp.Body); string(b) != "hello" || err != nil {
				t.Fatalf("%q, %v", b, err)
			}
		}
	}
	for end := time.Now().Add(30 * time.Second); open.Load() != 1; time.Sleep(time.Millisecond) {
		if time.Now().After(end) { // before the transport closes idle ones
			t.Fatalf("%d connections to servers", open.Load())
		}
	}
}

// trickle is a connection whose writes take at most each bytes and then time out.
type trickle struct {
	net.Conn
	each int
	got  []byte
}

func (c *trickle) SetWriteDeadline(time.Time) error { return nil }

func (c *trickle) Write(b []byte) (int, error) {
	n := min(c.each, len(b))
	c.got = append(c.got, b[:n]...)
	if n < len(b) {
		return n, os.ErrDeadlineExceeded
	}
	return n, nil
}

// TestSlowIsNotIdle: a write lasts as long as the other side takes some of it before each deadline.
func TestSlowIsNotIdle(t *testing.T) {
	s, c := &Server{}, &trickle{each: 1}
	n, err := s.write(c, newClock(time.Hour), []byte("hello"))
	if n != 5 || err != nil || string(c.got) != "hello" || s.Stats().IdleClosed != 0 {
		t.Errorf("%d %v %q %+v", n, err, c.got, s.Stats())
	}
	n, err = s.write(&trickle{}, newClock(0), []byte("hello"))
	if n != 0 || !isTimeout(err) || s.Stats().IdleClosed != 1 {
		t.Errorf("nothing moves: %d %v %+v", n, err, s.Stats())
	}
}

// TestBodyEndsItsDeadline: when the body has ended the client may be silent as long as the HTTP
// server lets it.
func TestBodyEndsItsDeadline(t *testing.T) {
	s := &Server{IdleTimeout: time.Hour, HandshakeTimeout: time.Hour}
	s.prepareHTTP()
	s.web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		web := r.Context().Value(connKey{}).(*httpConn)
		body, err := io.ReadAll(r.Body)
		web.mu.Lock()
		defer web.mu.Unlock()
		fmt.Fprintf(w, "%s %v %v", body, err, web.inBody)
	})
	q := newConnQueue()
	served := make(chan error, 1)
	go func() { served <- s.web.Serve(q) }()
	there, here := net.Pipe()
	there.SetDeadline(time.Now().Add(5 * time.Minute))
	s.wait.Add(1)
	q.push(&httpConn{Conn: here, client: newClient(s, here), clock: newClock(time.Hour)})
	go io.WriteString(there, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")
	resp, err := http.ReadResponse(bufio.NewReader(there), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(resp.Body); string(got) != "ab <nil> false" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	there.Close()
	s.wait.Wait()
	q.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
