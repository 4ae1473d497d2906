package dns

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/weirnet/weir/eyeballs/race"
)

// NameOf returns the name of an address, without the final dot, from wherever nsswitch.conf says.
// Who owns an address chooses its name, so a name that is none (RFC 952, RFC 1123) is an error, and
// one that is says nothing about who it really is.
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
			take := func(got Answer) { host, err = got.Host, got.Err }
			if r.Local(under, race.PTR, take) != 0 {
				r.askServers(ctx, sys, under, race.PTR, i == len(sources)-1, take)
			}
		case fromSystem:
			var all []string
			if all, err = net.DefaultResolver.LookupAddr(ctx, a.String()); len(all) > 0 {
				host = all[0]
			}
		}
		if host = strings.TrimSuffix(host, "."); host != "" {
			if !isHostName(host) {
				return "", fmt.Errorf("the name of %s is no host name: %q", a, host)
			}
			return host, nil
		}
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return "", err
}

// reverseName is the name under which the name of an address is found: RFC 1035 section 3.5, RFC
// 3596 section 2.5.
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

// isHostName allows letters, digits, hyphens, and underscores, which are no part of host names but
// of many names.
func isHostName(s string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return len(s) <= 253 && !strings.ContainsFunc(s, func(c rune) bool {
		return !strings.ContainsRune(allowed, c)
	})
}

// parseNames reads the names of addresses from a hosts file: the first one of the first line.
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
