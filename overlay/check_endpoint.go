package overlay

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// usualPort is the port in advice: that of WireGuard's own examples.
const usualPort = "51820"

// errEndpoint is an endpoint that is not HOST:PORT. There is no default port: the other node's may
// be any, and a wrong one only shows as a peer that never answers.
type errEndpoint struct {
	endpoint, what string
	host           string // "" if none can be read
}

func (e errEndpoint) Error() string { return fmt.Sprintf("endpoint %q %s", e.endpoint, e.what) }

// Hint returns what to write.
func (e errEndpoint) Hint() string {
	host := e.host
	if host == "" {
		host = "HOST"
	}
	return "write " + net.JoinHostPort(host, usualPort) +
		", with the port on which the other node listens (weir peer key -j there, or wg show)"
}

// checkEndpoint refuses what is not HOST:PORT.
func checkEndpoint(text string) error {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return withoutPort(text)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return errEndpoint{text, "needs a host and a port from 1 to 65535", host}
	}
	return nil
}

// withoutPort is the error for a text that cannot be divided.
func withoutPort(text string) error {
	bare := text
	if inner, ok := strings.CutPrefix(text, "["); ok {
		bare, _ = strings.CutSuffix(inner, "]")
	}
	if a, err := netip.ParseAddr(bare); err == nil && (bare == text || len(bare) == len(text)-2) {
		return errEndpoint{text, "has no port", a.String()}
	}
	if !strings.ContainsAny(text, ":[]") {
		return errEndpoint{text, "has no port", text}
	}
	before := text[:strings.LastIndexByte(text, ':')+1]
	if a, err := netip.ParseAddr(strings.TrimSuffix(before, ":")); err == nil {
		return errEndpoint{text, "has an IPv6 address without brackets", a.String()}
	}
	return errEndpoint{text, "is not HOST:PORT", ""}
}

// errNoEndpoint refuses a peer without encryption that has no endpoint.
type errNoEndpoint struct{ peer string }

func (e errNoEndpoint) Error() string {
	return fmt.Sprintf("overlay: peer %q: without encryption it needs an endpoint, the address of "+
		"its host", e.peer)
}

// Hint returns what to add.
func (errNoEndpoint) Hint() string { return "--endpoint ADDRESS:" + usualPort }
