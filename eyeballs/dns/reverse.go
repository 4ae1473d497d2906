package dns

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
)

// NameOf returns the name of an address, without the final dot, from the sources of nsswitch.conf.
// The owner of an address chooses its name. So a name that is not a host name (RFC 952, RFC 1123)
// is an error, and a host name proves nothing about the owner.
func (r *Resolver) NameOf(ctx context.Context, a netip.Addr) (string, error) {
	a = a.Unmap().WithZone("")
	under := reverseName(a)
	sys := r.system()
	err := errNoHost(under, "")
	sources := sys.orderFor(under)
	for i, src := range sources {
		var host string
		switch src {
		case fromFiles:
			host = sys.names[a]
		case fromDNS:
			answer := func(a Answer) { host, err = a.Host, a.Err }
			if r.QueryLocal(under, PTR, answer) != 0 {
				r.queryServers(ctx, sys, query{under, PTR, answer}, i == len(sources)-1)
			}
		case fromSystem:
			var all []string
			if all, err = net.DefaultResolver.LookupAddr(ctx, a.String()); len(all) > 0 {
				host = all[0]
			}
		}
		if host = strings.TrimSuffix(host, "."); host != "" {
			if !isHostName(host) {
				return "", fmt.Errorf("the name of %s is not a host name: %q", a, host)
			}
			return host, nil
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return "", err
}

// reverseName returns the name of the PTR record of an address (RFC 1035 section 3.5, RFC 3596
// section 2.5).
func reverseName(a netip.Addr) string {
	var b strings.Builder
	raw := a.AsSlice()
	for i := len(raw) - 1; i >= 0; i-- {
		if a.Is4() {
			fmt.Fprintf(&b, "%d.", raw[i])
		} else {
			fmt.Fprintf(&b, "%x.%x.", raw[i]&15, raw[i]>>4)
		}
	}
	if a.Is4() {
		return b.String() + "in-addr.arpa."
	}
	return b.String() + "ip6.arpa."
}

// isHostName allows letters, digits, hyphens and dots. It allows underscores too, which the RFCs do
// not, but many names have them.
func isHostName(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return len(s) <= 253 && !strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune(allowed, c)
	})
}

// parseNames reads the names of addresses from a hosts file: for each address, the first name of
// its first line.
func parseNames(r io.Reader) map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for text := range linesOf(r) {
		line, _, _ := strings.Cut(text, "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		if a, err := netip.ParseAddr(f[0]); err == nil && names[a.Unmap()] == "" {
			names[a.Unmap()] = f[1]
		}
	}
	return names
}
