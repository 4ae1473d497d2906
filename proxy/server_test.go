package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	xproxy "golang.org/x/net/proxy"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/internal/nstest"
)

// start serves on loopback, with a dialer that resolves only the names in hosts.
func start(t *testing.T, s *Server, hosts string) string {
	t.Helper()
	return startOn(t, s, hosts, func(l net.Listener) net.Listener { return l })
}

// testDialer returns a dialer for the names of a hosts file, like that of `weir proxy`.
func testDialer(t *testing.T, hosts string) func(context.Context, string, string) (net.Conn,
	error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"hosts": hosts,
		"resolv.conf": "nameserver [127.0.0.1]:1\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := &eyeballs.Dialer{DNS: &dns.Resolver{Dir: dir}, History: &eyeballs.History{},
		ControlContext: ControlContext(nil)}
	return d.DialContext
}

// startOn is start with a wrapped listener.
func startOn(t *testing.T, s *Server, hosts string, wrap func(net.Listener) net.Listener) string {
	t.Helper()
	if s.Dial == nil {
		s.Dial = testDialer(t, hosts)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(wrap(l)) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		s.Shutdown(ctx)
		if err := <-served; !errors.Is(err, ErrClosed) {
			t.Errorf("Serve returned %v", err)
		}
		if n := s.Stats().Clients; n != 0 {
			t.Errorf("%d clients after Shutdown", n)
		}
	})
	return l.Addr().String()
}

// echo starts a TCP server that echoes until the client ends its data.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go nstest.Echo(l)
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func dialSOCKS(t *testing.T, proxy, user, pass, address string) (net.Conn, error) {
	t.Helper()
	var auth *xproxy.Auth
	if user != "" {
		auth = &xproxy.Auth{User: user, Password: pass}
	}
	d, err := xproxy.SOCKS5("tcp", proxy, auth, nil)
	if err != nil {
		t.Fatal(err)
	}
	return d.Dial("tcp", address)
}

const oneHost = "127.0.0.1 host.test\n"

func TestSOCKS5Connect(t *testing.T) {
	s := &Server{}
	proxy := start(t, s, oneHost)
	port := echo(t)
	for _, host := range []string{"host.test", "127.0.0.1"} {
		c, err := dialSOCKS(t, proxy, "", "", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, c, 3<<20)
	}
	if st := s.Stats(); st.Connects != 2 || st.BytesRelayed != 2*2*3<<20 {
		t.Errorf("%+v", st)
	}
}

// roundTrip sends random bytes through an echo and expects them back. Both half-closes must be
// passed on.
func roundTrip(t *testing.T, c net.Conn, size int) {
	t.Helper()
	defer c.Close()
	want := make([]byte, size)
	rand.Read(want)
	go func() {
		c.Write(want)
		c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("got %d bytes of %d back: %v", len(got), len(want), err)
	}
}

func TestNamesAreNotResolvedBeforeTheRace(t *testing.T) {
	var dialed []string
	s := &Server{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		dialed = append(dialed, network+" "+address)
		return nil, errors.New("no")
	}}
	proxy := start(t, s, "")
	dialSOCKS(t, proxy, "", "", "some.name.test:443")
	connectHTTP(t, proxy, "other.name.test:443", "")
	if want := "tcp some.name.test:443 tcp other.name.test:443"; strings.Join(dialed, " ") != want {
		t.Errorf("dialed %q", dialed)
	}
}

func TestSOCKS5Password(t *testing.T) {
	s := &Server{Users: hashed("ann", "secret")}
	proxy := start(t, s, oneHost)
	port := echo(t)
	c, err := dialSOCKS(t, proxy, "ann", "secret", "host.test:"+port)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	for _, bad := range [][2]string{{"ann", "Secret"}, {"bob", "secret"}, {"", ""},
		{"bob", "\x00no such user"}} {
		if _, err := dialSOCKS(t, proxy, bad[0], bad[1], "host.test:"+port); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if st := s.Stats(); st.Denied != 4 {
		t.Errorf("%+v", st)
	}
}

func TestSOCKS5Replies(t *testing.T) {
	proxy := start(t, &Server{}, oneHost) // none of these addresses lets it wait
	for request, want := range map[string]byte{
		"\x05\x01\x00\x03\x09host.test\x00\x01":         replyRefused,
		"\x05\x01\x00\x03\x09none.test\x00\x50":         replyNoHost,
		"\x05\x02\x00\x01\x7f\x00\x00\x01\x00\x50":      replyNoCommand,
		"\x05\x01\x00\x09\x7f\x00\x00\x01\x00\x50":      replyNoAddress,
		"\x05\x01\x00\x03\x00\x00\x50":                  replyNoAddress,
		"\x04\x01\x00\x01\x7f\x00\x00\x01\x00\x50":      replyFailed,
		"\x05\x01\x00\x01\xff\xff\xff\xff\x00\x50":      replyNetUnreachable,
		"\x05\x01\x00\x04" + strings.Repeat("\x00", 18): replyRefused,
	} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(5 * time.Minute))
		io.WriteString(c, "\x05\x01\x00"+request) // all at once
		answer := make([]byte, 12)
		if _, err := io.ReadFull(c, answer); err != nil || answer[1] != 0 || answer[3] != want {
			t.Errorf("%q: answer %x %v, want reply %d", request, answer, err, want)
		}
		c.Close()
	}
	// An address that never answers.
	s2 := &Server{ConnectTimeout: 100 * time.Millisecond,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
	if _, err := dialSOCKS(t, start(t, s2, ""), "", "", "host.test:1"); err == nil ||
		!strings.Contains(err.Error(), "TTL expired") {
		t.Errorf("error %v", err)
	}
}

func TestEarlyData(t *testing.T) {
	proxy, port := start(t, &Server{}, oneHost), echo(t)
	var n int
	fmt.Sscan(port, &n)
	for name, open := range map[string][]byte{
		"SOCKS5":  append([]byte("\x05\x01\x00\x05\x01\x00\x03\x09host.test"), byte(n>>8), byte(n)),
		"CONNECT": []byte("CONNECT host.test:" + port + " HTTP/1.1\r\nHost: x\r\n\r\n"),
	} {
		c, err := net.Dial("tcp", proxy)
		if err != nil {
			t.Fatal(err)
		}
		c.SetDeadline(time.Now().Add(5 * time.Minute))
		c.Write(append(open, "hello"...)) // before the proxy has answered
		var got []byte
		b := make([]byte, 256)
		for !bytes.HasSuffix(got, []byte("hello")) {
			n, err := c.Read(b)
			if got = append(got, b[:n]...); err != nil {
				t.Errorf("%s: got %q and %v", name, got, err)
				break
			}
		}
		c.Close()
	}
}

// connectHTTP opens a tunnel with CONNECT.
func connectHTTP(t *testing.T, proxy, address, auth string) (net.Conn, *http.Response) {
	t.Helper()
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	c.SetDeadline(time.Now().Add(5 * time.Minute))
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", address, address, auth)
	resp, err := http.ReadResponse(bufio.NewReaderSize(c, 16), &http.Request{Method: "CONNECT"})
	if err != nil {
		t.Fatal(err)
	}
	return c, resp
}

func TestHTTPConnect(t *testing.T) {
	s := &Server{}
	proxy, port := start(t, s, oneHost), echo(t)
	c, resp := connectHTTP(t, proxy, "host.test:"+port, "")
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	roundTrip(t, c, 1<<20)
	for address, want := range map[string]int{"host.test:1": 502, "none.test:80": 502,
		"host.test": 400, ":80": 400} {
		if c, resp := connectHTTP(t, proxy, address, ""); resp.StatusCode != want {
			t.Errorf("%s: %s", address, resp.Status)
		} else {
			c.Close()
		}
	}
}

func TestHTTPPassword(t *testing.T) {
	s := &Server{Users: hashed("ann", "se:cret")}
	proxy, port := start(t, s, oneHost), echo(t)
	for auth, want := range map[string]int{
		"": 407,
		"Proxy-Authorization: Basic YW5uOnNlOmNyZXQ=\r\n": 200, // ann:se:cret
		"Proxy-Authorization: basic YW5uOnNlOmNyZXQ=\r\n": 200,
		"Proxy-Authorization: Basic YW5uOnNlOmNyZXU=\r\n": 407,
		"Proxy-Authorization: Basic ====\r\n":             407,
		"Proxy-Authorization: Bearer YW5u\r\n":            407,
	} {
		c, resp := connectHTTP(t, proxy, "host.test:"+port, auth)
		if resp.StatusCode != want || want == 407 && resp.Header.Get("Proxy-Authenticate") == "" {
			t.Errorf("%q: %s", auth, resp.Status)
		}
		c.Close()
	}
}

func TestHTTPPlain(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Proxy-Connection") != "" || r.Header.Get("Proxy-Authorization") != "" {
			t.Errorf("hop-by-hop headers went through: %v", r.Header)
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %s", r.Method, r.Host, r.URL, body)
	}))
	defer origin.Close()
	s := &Server{Users: hashed("ann", "secret")}
	proxy := start(t, s, "127.0.0.1 web.test\n")
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	client := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http",
		Host: proxy, User: url.UserPassword("ann", "secret")})}}
	defer client.CloseIdleConnections()
	for range 3 {
		resp, err := client.Post("http://web.test:"+port+"/path?q=1", "text/plain",
			strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := "POST web.test:" + port + " /path?q=1 body"; string(got) != want {
			t.Errorf("got %q want %q", got, want)
		}
	}
	if st := s.Stats(); st.Requests != 3 || st.Accepted != 1 {
		t.Errorf("%+v", st)
	}
	for line, want := range map[string]string{"GET / HTTP/1.1\r\nHost: x": "400",
		"GET https://web.test/ HTTP/1.1\r\nHost: x": "400", "get nonsense": "400"} {
		c, _ := net.Dial("tcp", proxy)
		c.SetDeadline(time.Now().Add(5 * time.Minute))
		fmt.Fprintf(c, "%s\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n", line)
		if status, _ := bufio.NewReader(c).ReadString('\n'); !strings.Contains(status, want) {
			t.Errorf("%q: %q", line, status)
		}
		c.Close()
	}
}

func TestTunnelTLS(t *testing.T) {
	origin := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "secret hello")
	}))
	defer origin.Close()
	proxy := start(t, &Server{}, "127.0.0.1 example.com\n")
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	for _, scheme := range []string{"http", "socks5"} {
		client := origin.Client()
		client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: scheme,
			Host: proxy})
		resp, err := client.Get("https://example.com:" + port + "/")
		if err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(got) != "secret hello" {
			t.Errorf("%s: %q", scheme, got)
		}
		client.CloseIdleConnections()
	}
}

func TestOtherClients(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "hello "+r.Host)
	}))
	defer origin.Close()
	proxy := start(t, &Server{}, "127.0.0.1 web.test\n")
	_, port, _ := net.SplitHostPort(origin.Listener.Addr().String())
	target := "http://web.test:" + port + "/"
	python := `import sys, urllib.request
o = urllib.request.build_opener(urllib.request.ProxyHandler({"http": "http://" + sys.argv[1]}))
sys.stdout.write(o.open(sys.argv[2], timeout=250).read().decode())`
	for name, command := range map[string][]string{
		"curl SOCKS5": {"curl", "-sS", "-m250", "--proxy", "socks5h://" + proxy, target},
		"curl CONNECT": {"curl", "-sS", "-m250", "--proxytunnel", "--proxy", "http://" + proxy,
			target},
		"curl plain": {"curl", "-sS", "-m250", "--proxy", "http://" + proxy, target},
		"python":     {"python3", "-c", python, proxy, target},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(command[0]); err != nil {
				if os.Getenv("WEIR_CI") == "1" {
					t.Fatal(err)
				}
				t.Skip("SKIPPED:", err)
			}
			out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			if err != nil || string(out) != "hello web.test:"+port {
				t.Errorf("%q %v", out, err)
			}
		})
	}
}
