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

// query is a name with the types of questions about it. answer receives one answer for each type.
type query struct {
	name   string
	types  Type
	answer func(Answer)
}

// refuse answers all types with an error.
func (q query) refuse(from string, err error) {
	for _, t := range order {
		if q.types&t != 0 {
			q.answer(Answer{Name: q.name, Type: t, From: from, Err: err})
		}
	}
}

// answerHosts answers all types with addresses: of the hosts file, or of the C library. It takes no
// query, so that answer does not escape to the heap in a dial of a name in the hosts file.
func answerHosts(name string, types Type, from string, e *hostAddrs, answer func(Answer)) {
	for _, t := range order {
		if types&t == 0 {
			continue
		}
		a := Answer{Name: name, Type: t, From: from}
		switch t {
		case A:
			a.Addrs = e.v4
		case AAAA:
			a.Addrs = e.v6
		}
		if len(a.Addrs) == 0 {
			a.Err = errNoRecord(name, "")
		}
		answer(a)
	}
}

// queryServers queries DNS about a name, completed by one search domain after another until one has
// a record. It returns the types that it did not answer. If last is true, no other source follows,
// and it answers all.
func (r *Resolver) queryServers(ctx context.Context, sys *system, q query, last bool) Type {
	deliver := func(a Answer) {
		if a.Type == Prefix64 {
			a.Prefixes, a.Addrs = nat64.Prefixes(a.Addrs), nil
			q.answer(a)
			return
		}
		r.cache.put(q.name, a, time.Now())
		q.answer(a)
	}
	config, types := &sys.config, q.types
	if config.NoAAAA && types&AAAA != 0 {
		query{q.name, AAAA, deliver}.refuse("resolv.conf", errNoRecord(q.name, ""))
		types &^= AAAA
	}
	names := config.candidates(q.name)
	var failure error // of a server, about an earlier name
	for i, full := range names {
		final := last && i == len(names)-1
		var held []Answer
		positive, lost := false, false
		r.queryName(ctx, config, query{full, types, func(a Answer) {
			a.Name = q.name
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
		}})
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
// it counts only from TCP, where an off-path attacker cannot answer. The well-known prefix leads
// only to the network's NAT64: it counts in any case.
func (r *Resolver) queryPrefixes(ctx context.Context, sys *system, answer func(Answer)) {
	accept := func(a Answer) {
		r.cache.put(prefixName, a, time.Now())
		answer(a)
	}
	own := false
	r.queryServers(ctx, sys, query{prefixName, Prefix64, func(a Answer) {
		if own = slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool {
			return p != nat64.WellKnownPrefix
		}); !own {
			accept(a)
		}
	}}, true)
	if !own || ctx.Err() != nil {
		return
	}
	overTCP := *sys
	overTCP.config.TCP = true
	r.queryServers(ctx, &overTCP, query{prefixName, Prefix64, accept}, true)
}

// queryName queries the servers about one full name. It calls q.answer once for each type, unless
// ctx ends.
func (r *Resolver) queryName(ctx context.Context, config *Config, q query) {
	wire, err := wireName(q.name)
	if err != nil {
		q.refuse("dns", err)
		return
	}
	if !config.Single {
		r.exchange(ctx, config, wire, q)
		return
	}
	for _, t := range order {
		if q.types&t != 0 && ctx.Err() == nil {
			r.exchange(ctx, config, wire, query{q.name, t, q.answer})
		}
	}
}

// wireName checks, by the rules of package net, that a name is valid in DNS. Anything else that a
// user may type (a number in parts, a space, a control character) is not a host, and is not sent to
// a server.
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
