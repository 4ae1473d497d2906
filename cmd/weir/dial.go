package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/weirnet/weir/eyeballs"
)

// dialAnswer is what `weir dial -j` prints.
type dialAnswer struct {
	Version  int         `json:"version"`
	Address  string      `json:"address"`
	Won      bool        `json:"won"`
	Winner   string      `json:"winner,omitempty"`
	Protocol string      `json:"protocol,omitempty"` // ALPN
	Millis   float64     `json:"ms"`
	Error    string      `json:"error,omitempty"`
	Events   []dialEvent `json:"events"`
}

// dialEvent is one line of the timeline.
type dialEvent struct {
	Millis    float64  `json:"ms"`
	Kind      string   `json:"kind"`
	Name      string   `json:"name,omitempty"`
	Types     string   `json:"types,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	Services  int      `json:"services,omitempty"`
	From      string   `json:"from,omitempty"`
	Attempt   *int     `json:"attempt,omitempty"`
	Address   string   `json:"address,omitempty"`
	Error     string   `json:"error,omitempty"`
}

func dialCommand(c *call) action {
	asJSON := c.json("")
	withTLS := c.Bool("tls", false, "a connection wins only after its TLS handshake")
	only4 := c.BoolP("ipv4", "4", false, "use IPv4 only")
	only6 := c.BoolP("ipv6", "6", false, "use IPv6 only")
	timeout := c.Duration("timeout", 10*time.Second, "give up after `TIME`")
	c.takes(1, 1)
	return func() error {
		if *only4 && *only6 {
			return c.wrong("-4 and -6 cannot be combined")
		}
		d := &eyeballs.Dialer{Timeout: *timeout}
		address, secure, web, err := dialTarget(c.Arg(0))
		if err != nil {
			return c.wrong("%v", err)
		}
		if secure || *withTLS {
			d.TLS, d.HTTPS = &tls.Config{}, secure
			if web {
				d.TLS.NextProtos = []string{"h2", "http/1.1"}
			}
		}
		network := "tcp"
		if *only4 {
			network = "tcp4"
		} else if *only6 {
			network = "tcp6"
		}
		a := dialAnswer{Version: 1, Address: address, Events: []dialEvent{}}
		line := timeline{w: c.out, show: c.show}
		d.Trace = func(e eyeballs.Event) {
			a.Events = append(a.Events, newDialEvent(&e))
			if !*asJSON {
				line.print(&e)
			}
		}
		begin := time.Now()
		conn, err := d.DialContext(c.ctx, network, address)
		a.Millis = millis(time.Since(begin))
		if err == nil {
			a.Won, a.Winner = true, conn.RemoteAddr().String()
			if t, ok := conn.(*tls.Conn); ok {
				a.Protocol = t.ConnectionState().NegotiatedProtocol
			}
			conn.Close()
		} else {
			a.Error = err.Error()
		}
		if *asJSON {
			if err := printJSON(c.out, a); err != nil {
				return err
			}
		} else if a.Won {
			fmt.Fprintf(c.out, "\n%s: connected to %s after %.1f ms", c.show(address), a.Winner,
				a.Millis)
			if a.Protocol != "" {
				fmt.Fprintf(c.out, ", protocol %s", c.show(a.Protocol))
			}
			fmt.Fprintln(c.out)
		}
		return err
	}
}

// dialTarget reads HOST:PORT or a URL. secure is set for a URL with TLS, web for HTTP.
func dialTarget(s string) (address string, secure, web bool, err error) {
	if !strings.Contains(s, "://") {
		host, port, err := net.SplitHostPort(s)
		if err != nil || host == "" || port == "" {
			return "", false, false, fmt.Errorf("%q is neither HOST:PORT nor a URL", s)
		}
		return s, false, false, nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return "", false, false, fmt.Errorf("%q is not a URL with a host", s)
	}
	port := u.Port()
	secure = u.Scheme == "https" || u.Scheme == "wss"
	web = secure || u.Scheme == "http" || u.Scheme == "ws"
	switch {
	case port != "":
	case secure:
		port = "443"
	case web:
		port = "80"
	default:
		return "", false, false, fmt.Errorf("%q: unknown port of %s; add it to the URL", s,
			u.Scheme)
	}
	return net.JoinHostPort(u.Hostname(), port), secure, web, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func newDialEvent(e *eyeballs.Event) dialEvent {
	j := dialEvent{Millis: millis(e.At), Kind: e.Kind.String(), Name: e.Name, From: e.From,
		Services: len(e.Services)}
	if e.Types != 0 {
		j.Types = e.Types.String()
	}
	for _, a := range e.Addrs {
		j.Addresses = append(j.Addresses, a.String())
	}
	for _, p := range e.Prefixes {
		j.Addresses = append(j.Addresses, p.String())
	}
	if e.Addr.IsValid() {
		j.Address, j.Attempt = e.Addr.String(), &e.Attempt
	}
	if e.Err != nil {
		j.Error = e.Err.Error()
	}
	return j
}

// timeline prints a race as it runs, one line for each event.
type timeline struct {
	w    io.Writer
	show func(string) string
}

func (t *timeline) print(e *eyeballs.Event) {
	word, text := "", ""
	attempt := fmt.Sprintf("#%d %s", e.Attempt+1, e.Addr)
	switch e.Kind {
	case eyeballs.EventAsking:
		word, text = "ask", fmt.Sprintf("%s of %s", strings.ReplaceAll(e.Types.String(), "+", ", "),
			t.show(e.Name))
	case eyeballs.EventAnswered:
		word, text = "answer", fmt.Sprintf("%s: %s", e.Types, t.answer(e))
	case eyeballs.EventConnecting:
		word, text = "try", attempt
	case eyeballs.EventConnected:
		word, text = "up", attempt+", handshake begins"
	case eyeballs.EventFailed:
		word, text = "fail", attempt+": "+t.show(reason(e.Err))
	case eyeballs.EventCancelled:
		word, text = "drop", attempt+", no longer needed"
	case eyeballs.EventWon:
		word, text = "won", attempt
	case eyeballs.EventLost:
		word, text = "lost", "nothing is left to try"
	}
	fmt.Fprintf(t.w, "%9.1f ms  %-6s  %s\n", millis(e.At), word, text)
}

// answer shows at most three addresses: a race seldom needs more.
func (t *timeline) answer(e *eyeballs.Event) string {
	if e.Err != nil {
		return t.show(reason(e.Err)) + t.from(e)
	}
	var parts []string
	for i, a := range e.Addrs {
		if i == 3 && len(e.Addrs) > 4 {
			parts = append(parts, fmt.Sprintf("and %d more", len(e.Addrs)-i))
			break
		}
		parts = append(parts, a.String())
	}
	for _, p := range e.Prefixes {
		parts = append(parts, p.String())
	}
	for i := range e.Services {
		s := &e.Services[i]
		part := fmt.Sprintf("priority %d", s.Priority)
		if s.Alias() {
			part = "alias of"
		}
		if s.Target != "" {
			part += " " + t.show(s.Target)
		}
		if len(s.ALPN) > 0 {
			part += " " + t.show(strings.Join(s.ALPN, ","))
		}
		if s.Port != 0 {
			part += fmt.Sprintf(" port %d", s.Port)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ") + t.from(e)
}

func (t *timeline) from(e *eyeballs.Event) string {
	switch {
	case e.From == "" || e.From == "host":
		return ""
	case e.From == "cache" || e.From == "hosts" || e.From == "system":
		return " (from " + e.From + ")"
	}
	if ap, err := netip.ParseAddrPort(e.From); err == nil && ap.Port() == 53 {
		return " (from " + ap.Addr().String() + ")"
	}
	return " (from " + t.show(e.From) + ")"
}

// reason is the cause, without what the line has already.
func reason(err error) string {
	var d *net.DNSError
	if errors.As(err, &d) {
		return d.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}
