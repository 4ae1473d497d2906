package dns

import (
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config is the content of resolv.conf.
type Config struct {
	// Servers are the name servers in the order of the file.
	Servers []netip.AddrPort
	// Search lists the domains to try, without the final dot.
	Search []string
	// Ndots is the smallest number of dots with which a name is tried as it is before the search
	// domains.
	Ndots int
	// Timeout and Attempts bound a query: it ends after Timeout * Attempts, whatever the number of
	// servers. A server has Timeout for an answer over TCP.
	Timeout  time.Duration
	Attempts int
	// Rotate spreads the load over the servers.
	Rotate bool
	// TrustAD requests the AD bit and trusts it.
	TrustAD bool
	// Single sends one question after the other; Reopen sends each from its own port. Both are for
	// equipment that loses one of two answers.
	Single, Reopen bool
	// TCP sends queries over TCP only.
	TCP bool
	// NoAAAA sends no AAAA queries.
	NoAAAA bool
}

// Bounds of resolv.conf(5), and two of this package. glibc reads three servers; RFC 8305 section
// 3.1 asks for no such limit, and 16 is above any real configuration.
const (
	maxNdots    = 15
	maxTimeout  = 30 * time.Second
	maxAttempts = 5
	maxServers  = 16
	maxSearch   = 32
)

// DefaultConfig returns the configuration without a resolv.conf.
func DefaultConfig() Config {
	return Config{
		Servers: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:53"),
			netip.MustParseAddrPort("[::1]:53")},
		Ndots:    1,
		Timeout:  5 * time.Second,
		Attempts: 2,
	}
}

// ParseConfig reads a resolv.conf. Like every resolver, it skips what it does not understand. The
// search domain comes from hostname if the file has none.
func ParseConfig(r io.Reader, hostname string) Config {
	c := DefaultConfig()
	c.Servers = nil
	c.Search = localDomain(hostname)
	for text := range linesOf(r) {
		line := strings.TrimSuffix(text, "\n")
		if i := strings.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		f := strings.Fields(line)
		if len(f) < 2 {
			if len(f) == 1 && f[0] == "search" {
				c.Search = nil
			}
			continue
		}
		switch f[0] {
		case "nameserver":
			if s, ok := parseServer(f[1]); ok && len(c.Servers) < maxServers &&
				!slices.Contains(c.Servers, s) {
				c.Servers = append(c.Servers, s)
			}
		case "domain":
			c.Search = domains(f[1:2])
		case "search":
			c.Search = domains(f[1:])
		case "options":
			for _, o := range f[1:] {
				c.option(o)
			}
		}
	}
	if len(c.Servers) == 0 {
		c.Servers = DefaultConfig().Servers
	}
	return c
}

// option sets one word of an options line.
func (c *Config) option(o string) {
	key, value, _ := strings.Cut(o, ":")
	n, err := strconv.Atoi(value)
	number := err == nil && n >= 0
	switch {
	case key == "ndots" && number:
		c.Ndots = min(n, maxNdots)
	case key == "timeout" && number:
		c.Timeout = min(max(time.Duration(n)*time.Second, time.Second), maxTimeout)
	case key == "attempts" && number:
		c.Attempts = min(max(n, 1), maxAttempts)
	case o == "rotate":
		c.Rotate = true
	case o == "trust-ad":
		c.TrustAD = true
	case o == "single-request":
		c.Single = true
	case o == "single-request-reopen":
		c.Reopen = true
	case o == "use-vc", o == "usevc", o == "tcp":
		c.TCP = true
	case o == "no-aaaa":
		c.NoAAAA = true
	}
}

func parseServer(s string) (netip.AddrPort, bool) {
	host, port := s, uint64(53)
	if inner, ok := strings.CutPrefix(s, "["); ok {
		var after string
		if host, after, ok = strings.Cut(inner, "]:"); !ok {
			return netip.AddrPort{}, false
		}
		var err error
		if port, err = strconv.ParseUint(after, 10, 16); err != nil {
			return netip.AddrPort{}, false
		}
	}
	a, err := netip.ParseAddr(host)
	return netip.AddrPortFrom(a.Unmap(), uint16(port)), err == nil
}

func domains(fields []string) []string {
	var list []string
	for _, d := range fields {
		d = strings.ToLower(strings.Trim(d, "."))
		if d != "" && len(d) < 254 && len(list) < maxSearch {
			list = append(list, d)
		}
	}
	return list
}

func localDomain(hostname string) []string {
	if _, domain, ok := strings.Cut(hostname, "."); ok {
		return domains([]string{domain})
	}
	return nil
}

// candidates returns the full names, without the final dot, that name may stand for, in the order
// of trying.
func (c *Config) candidates(name string) []string {
	if rooted := strings.HasSuffix(name, "."); rooted || len(c.Search) == 0 {
		return []string{strings.TrimSuffix(name, ".")}
	}
	list := make([]string, 0, len(c.Search)+1)
	asIs := strings.Count(name, ".") >= c.Ndots
	if asIs {
		list = append(list, name)
	}
	for _, d := range c.Search {
		if full := name + "." + d; len(full) < 254 {
			list = append(list, full)
		}
	}
	if !asIs {
		list = append(list, name)
	}
	return list
}
