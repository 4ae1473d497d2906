package dns

import (
	"io"
	"net/netip"
	"slices"
	"strings"
)

// hosts is a hosts file: it maps a name, in lower case and without the final dot, to addresses in
// the order of the file.
type hosts map[string]*hostAddrs

type hostAddrs struct{ v4, v6 []netip.Addr }

func parseHosts(r io.Reader) hosts {
	h := hosts{}
	for text := range linesOf(r) {
		line, _, _ := strings.Cut(text, "#")
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		a, err := netip.ParseAddr(f[0])
		if err != nil {
			continue
		}
		a = a.Unmap()
		for _, name := range f[1:] {
			name = strings.ToLower(strings.TrimSuffix(name, "."))
			e := h[name]
			if e == nil {
				e = &hostAddrs{}
				h[name] = e
			}
			to := &e.v6
			if a.Is4() {
				to = &e.v4
			}
			if !slices.Contains(*to, a) {
				*to = append(*to, a)
			}
		}
	}
	return h
}

// loopback is the answer for localhost if the file has none. That name never goes to a server (RFC
// 6761 section 6.3).
var loopback = &hostAddrs{
	v4: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})},
	v6: []netip.Addr{netip.IPv6Loopback()},
}

// find returns the addresses of a name in lower case and without the final dot, nil if it has none.
func (h hosts) find(name string) *hostAddrs {
	if e := h[name]; e != nil {
		return e
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		return loopback
	}
	return nil
}
