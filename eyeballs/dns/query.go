package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/internal/nat64"
)

// queryServers queries DNS about name, completed by one search domain after the other until one has
// a record. It returns the types that it did not answer, which are none if last is true: no other
// source follows.
func (r *Resolver) queryServers(ctx context.Context, sys *system, name string, types Type,
	last bool, answer func(Answer)) Type {
	deliver := func(a Answer) {
		if a.Type == Prefix64 {
			a.Prefixes, a.Addrs = nat64.Prefixes(a.Addrs), nil
			answer(a)
			return
		}
		r.cache.put(name, a, time.Now())
		answer(a)
	}
	config := &sys.config
	if config.NoAAAA && types&AAAA != 0 {
		refuse(name, AAAA, "resolv.conf", errNoRecord(name, ""), deliver)
		types &^= AAAA
	}
	names := config.candidates(name)
	var failure error // of a server, about an earlier name
	for i, full := range names {
		final := last && i == len(names)-1
		var held []Answer
		positive, lost := false, false
		r.queryName(ctx, config, full, types, func(a Answer) {
			a.Name = name
			positive = positive || a.Err == nil
			lost = lost || isTimeout(a.Err)
			if isNotFound(a.Err) && failure != nil {
				a.Err, a.TTL = failure, 0 // the earlier name may have the record
			} else if a.Err != nil && !isNotFound(a.Err) {
				failure = a.Err
			}
			if !positive && !final {
				// The next name may have the record.
				held = append(held, a)
				return
			}
			for _, h := range held {
				deliver(h)
			}
			held = nil
			deliver(a)
		})
		if ctx.Err() != nil || positive || final {
			return 0
		}
		if lost || last && i == len(names)-1 {
			for _, h := range held {
				deliver(h)
			}
			return 0
		}
		if i == len(names)-1 {
			return types
		}
	}
	return 0
}

// queryPrefixes queries the prefixes of a NAT64. A prefix of the network's own decides where all
// IPv4 traffic goes, and its answer is not authenticated (RFC 7050 section 3.1 asks for that). So
// it counts only from TCP, where an attacker beside the path cannot answer. The well-known prefix
// leads only to the network's NAT64: it counts in any case.
func (r *Resolver) queryPrefixes(ctx context.Context, sys *system, answer func(Answer)) {
	accept := func(a Answer) {
		r.cache.put(prefixName, a, time.Now())
		answer(a)
	}
	own := false
	r.queryServers(ctx, sys, prefixName, Prefix64, true, func(a Answer) {
		if own = slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool {
			return p != nat64.WellKnownPrefix
		}); !own {
			accept(a)
		}
	})
	if !own || ctx.Err() != nil {
		return
	}
	overTCP := *sys
	overTCP.config.TCP = true
	r.queryServers(ctx, &overTCP, prefixName, Prefix64, true, accept)
}

// queryName queries the servers about one full name. It calls answer once for each type, unless ctx
// ends.
func (r *Resolver) queryName(ctx context.Context, config *Config, full string, types Type,
	answer func(Answer)) {
	wire, err := wireName(full)
	if err != nil {
		refuse(full, types, "dns", err, answer)
		return
	}
	if !config.Single {
		r.exchange(ctx, config, wire, full, types, answer)
		return
	}
	for _, t := range order {
		if types&t != 0 && ctx.Err() == nil {
			r.exchange(ctx, config, wire, full, t, answer)
		}
	}
}

// wireName checks by the rules of package net that DNS may have a name. Anything else that a user
// may type (a number in parts, a space, a control character) is not a host, and is not sent to a
// server.
func wireName(full string) (dnsmessage.Name, error) {
	bad := errNoHost(full, "")
	if len(full) == 0 || len(full) > 253 {
		return dnsmessage.Name{}, bad
	}
	label, numbers, last := 0, true, byte('.')
	for _, c := range []byte(full) {
		switch {
		case lower(c) >= 'a' && lower(c) <= 'z', c == '_':
			label, numbers = label+1, false
		case c >= '0' && c <= '9':
			label++
		case c == '-' && last != '.':
			label, numbers = label+1, false
		case c == '.' && last != '.' && last != '-':
			label = 0
		default:
			return dnsmessage.Name{}, bad
		}
		if label > 63 {
			return dnsmessage.Name{}, bad
		}
		last = c
	}
	if numbers || last == '-' || last == '.' {
		return dnsmessage.Name{}, bad
	}
	return dnsmessage.NewName(full + ".")
}

func isTimeout(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsTimeout
}

func isNotFound(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && d.IsNotFound
}
