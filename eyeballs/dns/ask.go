package dns

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/nat64"
	"github.com/weirnet/weir/eyeballs/race"
)

// askServers asks DNS about name, completed by one search domain after the other
// until one has a record. It returns the types it did not answer, which happens
// only if another source follows, that is, if last is false.
func (r *Resolver) askServers(ctx context.Context, sys *system, name string, types race.Types,
	last bool, answer func(Answer)) race.Types {
	deliver := func(a Answer) {
		if a.Type == race.Prefix64 {
			a.Prefixes, a.Addrs = nat64.Prefixes(a.Addrs), nil
			answer(a)
			return
		}
		r.cache.put(name, a, time.Now())
		answer(a)
	}
	config := &sys.config
	if config.NoAAAA && types&race.AAAA != 0 {
		refuse(name, race.AAAA, "resolv.conf", errNoRecord(name, ""), deliver)
		types &^= race.AAAA
	}
	names := config.candidates(name)
	var failure error // of a server, while asking about an earlier name
	for i, full := range names {
		final := last && i == len(names)-1
		var held []Answer
		positive, lost := false, false
		r.exchange(ctx, config, full, types, func(a Answer) {
			a.Name = name
			positive = positive || a.Err == nil
			lost = lost || isTimeout(a.Err)
			if isNotFound(a.Err) && failure != nil {
				a.Err, a.TTL = failure, 0 // who knows what the earlier name has
			} else if a.Err != nil && !isNotFound(a.Err) {
				failure = a.Err
			}
			if !positive && !final {
				// Perhaps the next name has what this one has not.
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

// askPrefixes asks for the prefixes of a NAT64. A prefix of the network's own decides where all
// IPv4 traffic goes, and its answer carries no proof (RFC 7050 section 3.1 wants one): it is
// believed from TCP alone, where nobody beside the path can answer. The well-known prefix leads
// nowhere but to the network's NAT64, and is taken as it comes.
func (r *Resolver) askPrefixes(ctx context.Context, sys *system, answer func(Answer)) {
	believe := func(a Answer) {
		r.cache.put(prefixName, a, time.Now())
		answer(a)
	}
	own := false
	r.askServers(ctx, sys, prefixName, race.Prefix64, true, func(a Answer) {
		if own = slices.ContainsFunc(a.Prefixes, func(p netip.Prefix) bool {
			return p != nat64.WellKnownPrefix
		}); !own {
			believe(a)
		}
	})
	if !own || ctx.Err() != nil {
		return
	}
	overTCP := *sys
	overTCP.config.TCP = true
	r.askServers(ctx, &overTCP, prefixName, race.Prefix64, true, believe)
}

// exchange asks the servers about one full name. It calls answer once for each
// type, unless ctx ends.
func (r *Resolver) exchange(ctx context.Context, config *Config, full string, types race.Types,
	answer func(Answer)) {
	wire, err := wireName(full)
	if err != nil {
		refuse(full, types, "dns", err, answer)
		return
	}
	if !config.Single {
		r.fly(ctx, config, wire, full, types, answer)
		return
	}
	for _, t := range order {
		if types&t != 0 && ctx.Err() == nil {
			r.fly(ctx, config, wire, full, t, answer)
		}
	}
}

// wireName checks that a name is one that DNS may have, by the rules of package net: what else
// somebody types (a number in parts, a space, a control character) is no host, and no server hears
// of it.
func wireName(full string) (dnsmessage.Name, error) {
	no := errNoHost(full, "")
	if len(full) == 0 || len(full) > 253 {
		return dnsmessage.Name{}, no
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
			return dnsmessage.Name{}, no
		}
		if label > 63 {
			return dnsmessage.Name{}, no
		}
		last = c
	}
	if numbers || last == '-' || last == '.' {
		return dnsmessage.Name{}, no
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
