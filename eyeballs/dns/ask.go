package dns

import (
	"context"
	"errors"
	"net"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/nat64"
	"github.com/weirnet/weir/eyeballs/race"
)

// askServers asks DNS about name, completed by one search domain after the other
// until one has a record. It returns the types it did not answer, which happens
// only if another source follows, that is, if last is false.
func (r *Resolver) askServers(ctx context.Context, sys *system, name string, types race.Types, last bool, answer func(Answer)) race.Types {
	deliver := func(a Answer) {
		if a.Type == race.Prefix64 {
			a.Prefixes, a.Addrs = nat64.Prefixes(a.Addrs), nil
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

// exchange asks the servers about one full name. It calls answer once for each
// type, unless ctx ends.
func (r *Resolver) exchange(ctx context.Context, config *Config, full string, types race.Types, answer func(Answer)) {
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

// wireName checks what dnsmessage would refuse only later, at packing.
func wireName(full string) (dnsmessage.Name, error) {
	label := 0
	for i := range len(full) {
		if full[i] != '.' {
			if label++; label > 63 {
				return dnsmessage.Name{}, errNoHost(full, "")
			}
			continue
		}
		if label == 0 {
			return dnsmessage.Name{}, errNoHost(full, "")
		}
		label = 0
	}
	if len(full) == 0 || len(full) > 253 {
		return dnsmessage.Name{}, errNoHost(full, "")
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
