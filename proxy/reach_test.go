package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/pipenet"
)

// TestRefusalReason: a client of another host reaches only other hosts.
func TestRefusalReason(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "127.9.9.9", "::1", "0.0.0.0", "0.1.2.3", "::",
		"169.254.169.254", "fe80::1%lo", "224.0.0.1", "ff02::1",
		"255.255.255.255", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
		"fd00:ec2::254", "100.100.100.200", "fd20:ce::254", "fd00:42::42", "168.63.129.16",
		"64:ff9b::a83f:8110",
		// 169.254.169.254 as in the table of RFC 6052 section 2.4, and others of its kind
		"2001:db8:a9fe:a9fe::", "2001:db8:1a9:fea9:fe::", "2001:db8:122:a9fe:a9:fe00::",
		"2001:db8:122:3a9:fe:a9fe::", "2001:db8:122:344:a9:fea9:fe00::",
		"2001:db8:122:344::a9fe:a9fe", "2001:db8:122:344::a9fe:aa02",
		"2001:db8:122:344::6464:64c8"} {
		if refusalReason(netip.MustParseAddr(a)) == "" {
			t.Errorf("%s can be reached", a)
		}
	}
	for _, a := range []string{"192.0.2.1", "2001:db8::1", "10.1.2.3", "64:ff9b::c000:201",
		"fd00::1", "2001:db8:122:344::a9fe:a9fd", "2001:db8:122:344:a9fe:a9fe::"} {
		if why := refusalReason(netip.MustParseAddr(a)); why != "" {
			t.Errorf("%s: %s", a, why)
		}
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range list {
		a, _ := netip.AddrFromSlice(n.(*net.IPNet).IP)
		if refusalReason(a) == "" {
			t.Errorf("%s, an address of this host, can be reached", a)
		}
	}
}

// remoteConn is a connection of a client that seems to be on another host.
type remoteConn struct{ net.Conn }

func (remoteConn) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP("192.0.2.7"), Port: 4000}
}

// remoteListener makes all clients seem to be on another host.
type remoteListener struct{ net.Listener }

func (l remoteListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remoteConn{c}, nil
}

// TestRemoteClient: a client of another host does not reach this host by any name, neither by
// SOCKS5 nor by HTTP, neither over TCP nor over UDP, unless LocalTargets allows it.
func TestRemoteClient(t *testing.T) {
	port := echo(t)
	for _, allowed := range []bool{false, true} {
		s := &Server{LocalTargets: allowed}
		proxy := startOn(t, s, "127.0.0.1 evil.test\n", func(l net.Listener) net.Listener {
			return remoteListener{l}
		})
		for _, host := range []string{"evil.test", "127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0"} {
			c, err := dialSOCKS(t, proxy, "", "", host+":"+port)
			if (err == nil) != allowed {
				t.Errorf("allowed %v: SOCKS5 to %s: %v", allowed, host, err)
			}
			if err == nil {
				c.Close()
			} else if !allowed && !strings.Contains(err.Error(), "ruleset") {
				t.Errorf("reply to %s: %v", host, err)
			}
			c, resp := connectHTTP(t, proxy, host+":"+port, "")
			if want := map[bool]int{false: 403, true: 200}[allowed]; resp.StatusCode != want {
				t.Errorf("allowed %v: CONNECT %s: %s", allowed, host, resp.Status)
			}
			c.Close()
		}
	}
	remote := (&Server{}).withClient(context.Background(), remoteConn{})
	d := testDialer(t, "127.0.0.1 evil.test\n")
	if c, err := d(remote, "udp", "evil.test:53"); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("UDP: %v %v", c, err)
	}
}

// TestRemoteClientAndNetworks: a client of another host does not reach this host by a broadcast
// address or an anycast address of a network.
func TestRemoteClientAndNetworks(t *testing.T) {
	lab := nstest.New(t)
	host, peer := lab.Node("host"), lab.Node("peer")
	lab.Join(host, "eth0", "10.9.9.1/24 2001:db8:9::1/64", peer, "eth0",
		"10.9.9.2/24 2001:db8:9::2/64")
	forget := func() {
		hostAddrs.mu.Lock()
		hostAddrs.read = time.Time{} // those of another namespace
		hostAddrs.mu.Unlock()
	}
	forget()
	defer forget()
	remote := (&Server{}).withClient(context.Background(), remoteConn{})
	d := net.Dialer{ControlContext: ControlContext(nil)}
	for address, want := range map[string]bool{"10.9.9.2": true, "2001:db8:9::2": true,
		"10.9.9.255": false, "2001:db8:9::": false} {
		err := host.Do(func() error {
			c, err := d.DialContext(remote, "udp", net.JoinHostPort(address, "9"))
			if err == nil {
				c.Close()
			}
			return err
		})
		if (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestRemoteClientAndRoutes: a client of another host does not reach an address that routes lead to
// this host for, and none while that is not known.
func TestRemoteClientAndRoutes(t *testing.T) {
	broken := errors.New("broken")
	d := net.Dialer{ControlContext: ControlContext(func(a netip.Addr) (bool, error) {
		if a == netip.MustParseAddr("198.18.77.3") {
			return false, broken
		}
		return netip.MustParsePrefix("198.18.77.0/31").Contains(a), nil
	})}
	remote := (&Server{}).withClient(context.Background(), remoteConn{})
	for address, want := range map[string]error{"198.18.77.1": ErrNotAllowed, "198.18.77.3": broken,
		"::ffff:198.18.77.1": ErrNotAllowed, "127.0.0.1": ErrNotAllowed} {
		c, err := d.DialContext(remote, "udp", net.JoinHostPort(address, "9"))
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, want) || !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", address, err)
		}
	}
	if c, err := d.DialContext(context.Background(), "udp", "127.0.0.1:9"); err != nil {
		t.Errorf("a client of this host: %v", err)
	} else {
		c.Close()
	}
	if err := control(remote, "tcp", "198.18.77.2:9", nil, func(netip.Addr) (bool, error) {
		return false, nil
	}); err != nil {
		t.Errorf("another host: %v", err)
	}
}

// TestUnknownAddresses: while the addresses of this host cannot be read, each address may be one.
func TestUnknownAddresses(t *testing.T) {
	var failed error
	a := addrCache{list: func() ([]net.Addr, error) { return nil, failed }}
	for _, failed = range []error{errors.New("too many open files"), nil} {
		if got := a.has(netip.MustParseAddr("192.0.2.1")); got != (failed != nil) {
			t.Errorf("after %v: an address of this host: %v", failed, got)
		}
	}
}

// TestConnectionsAreNotShared: a server may bind a connection to the user that has authenticated on
// it. So no other client, and no other user of the same client, gets that connection.
func TestConnectionsAreNotShared(t *testing.T) {
	seen := make(chan string, 16)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.RemoteAddr
		io.WriteString(w, "hello")
	}))
	defer origin.Close()
	users := hashed("ann", "secret")
	users["bob"] = users["ann"]
	proxy := start(t, &Server{Users: users}, "")
	get := func(c *http.Client) string {
		t.Helper()
		resp, err := c.Get(origin.URL)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return <-seen
	}
	clientOf := func(user string) *http.Client {
		via := &url.URL{Scheme: "http", Host: proxy, User: url.UserPassword(user, "secret")}
		return &http.Client{Timeout: 5 * time.Minute,
			Transport: &http.Transport{Proxy: http.ProxyURL(via)}}
	}
	ann, annElsewhere, bob := clientOf("ann"), clientOf("ann"), clientOf("bob")
	for _, c := range []*http.Client{ann, annElsewhere, bob} {
		defer c.CloseIdleConnections()
	}
	first := get(ann)
	if again := get(ann); again != first {
		t.Errorf("a client's own connection is not reused: %s, %s", first, again)
	}
	if other := get(bob); other == first {
		t.Error("bob goes over ann's connection")
	}
	if other := get(annElsewhere); other == first {
		t.Error("another client goes over ann's connection")
	}
	// The same connection to the proxy, another user.
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(5 * time.Minute))
	in := bufio.NewReader(c)
	var from []string
	for _, credentials := range []string{"YW5uOnNlY3JldA==", "Ym9iOnNlY3JldA=="} {
		from = append(from, func() string {
			io.WriteString(c, "GET "+origin.URL+
				"/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic "+credentials+"\r\n\r\n")
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%+v %v", resp, err)
			}
			io.Copy(io.Discard, resp.Body)
			return <-seen
		}())
	}
	if from[0] == from[1] {
		t.Error("two users of one connection share the one to the server")
	}
}

// TestSilentServer: a client does not wait forever for a server that never answers a plain request.
func TestSilentServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.Copy(io.Discard, c)
		}
	}()
	s := &Server{IdleTimeout: 200 * time.Millisecond}
	proxy := start(t, s, "")
	client := &http.Client{Timeout: 5 * time.Minute,
		Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy})}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + l.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("status %s", resp.Status)
	}
	if s.Stats().IdleClosed == 0 {
		t.Error("it is not counted")
	}
}

// TestSilentUpgrade: a connection that was upgraded to another protocol and is silent is closed.
func TestSilentUpgrade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := pipenet.Listen()
		web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"+
				"Upgrade: test\r\n\r\nhello")
			io.Copy(io.Discard, c)
		})}
		go web.Serve(origin)
		defer web.Close()
		s := &Server{IdleTimeout: time.Minute, Dial: origin.Dial,
			Users: hashed("ann", "secret")}
		clients := pipenet.Listen()
		go s.Serve(clients)
		defer s.Shutdown(t.Context())
		c, err := clients.Dial(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		go io.WriteString(c, "GET http://origin.test/ HTTP/1.1\r\nHost: origin.test\r\n"+
			"Proxy-Authorization: Basic "+
			base64.StdEncoding.EncodeToString([]byte("ann:secret"))+
			"\r\nConnection: Upgrade\r\nUpgrade: test\r\n\r\n")
		all, err := io.ReadAll(c)
		if err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 101 ") ||
			!strings.HasSuffix(string(all), "hello") {
			t.Errorf("%q, %v", all, err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("closed after %v", took)
		}
		if s.Stats().IdleClosed == 0 {
			t.Error("it is not counted")
		}
	})
}

// TestQuota: one client has at most a quarter of all destinations, and released ones can be used
// again.
func TestQuota(t *testing.T) {
	b := newQuota(8)
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	taken := 0
	for range 8 {
		if b.acquire(one, 1) {
			taken++
		}
	}
	if taken != 2 {
		t.Errorf("one client gets %d of eight, not two", taken)
	}
	if !b.acquire(two, 1) {
		t.Error("another client gets none")
	}
	b.release(one, 1)
	if !b.acquire(one, 1) {
		t.Error("what was given back is gone")
	}
	b.release(one, 1)
	b.release(one, 1)
	b.release(two, 1)
	if b.used != 0 || len(b.bySource) != 0 {
		t.Errorf("%d in use, %v", b.used, b.bySource)
	}
}
