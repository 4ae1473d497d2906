package dns

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/eyeballs/nat64"
	"github.com/weirnet/weir/eyeballs/race"
)

// Resolver looks names up. The zero value follows the files in /etc. It is safe
// for concurrent use and must not be copied.
type Resolver struct {
	// Dir is where resolv.conf, hosts and nsswitch.conf are; "" means /etc.
	Dir string

	sys    atomic.Pointer[system]
	reload sync.Mutex
	cache  cache
	good   atomic.Uint32 // the server that answered last, or the next one with rotate
	stats  counters
}

// Answer is the answer to one question.
type Answer struct {
	race.Answer
	// Host is the answer to a question of type PTR.
	Host string
	// TTL is how long the answer may be kept from now on.
	TTL time.Duration
	// Authentic is the AD bit of a server that resolv.conf trusts.
	Authentic bool
	// From names the source: hosts, cache, system, or the address of a server.
	From string
	// Err says why there is no record: a *net.DNSError.
	Err error
}

// Stats counts what went wrong while asking.
type Stats struct {
	Bogus      uint64 // packets that answered no question of ours
	Resent     uint64 // transmissions after the first
	Truncated  uint64 // answers asked for again over TCP
	ServerFail uint64 // servers that refused, failed, or could not be reached
	Timeouts   uint64 // questions that nobody answered
}

type counters struct {
	bogus, resent, truncated, serverFail, timeouts atomic.Uint64
}

// Stats returns the counters since the resolver was made.
func (r *Resolver) Stats() Stats {
	return Stats{r.stats.bogus.Load(), r.stats.resent.Load(), r.stats.truncated.Load(),
		r.stats.serverFail.Load(), r.stats.timeouts.Load()}
}

// Flush empties the cache.
func (r *Resolver) Flush() { r.cache.flush() }

// order is the order in which questions are asked (HEv3 section 4.1).
var order = [...]race.Types{race.HTTPS, race.AAAA, race.A, race.Prefix64, race.PTR}

// Static reports whether the hosts file, or the rule for localhost, has the name.
func (r *Resolver) Static(name string) bool {
	return r.system().hosts.find(canonical(name)) != nil
}

// prefixName is what is asked for Prefix64, rooted: no search domain applies.
const prefixName = nat64.Name + "."

// Local answers what needs no packet: names of the hosts file and answers in the
// cache. It calls answer before it returns, and returns the questions left.
func (r *Resolver) Local(name string, types race.Types, answer func(Answer)) race.Types {
	sys := r.system()
	key := canonical(name)
	for i, src := range sys.orderFor(key) {
		switch src {
		case fromFiles:
			if e := sys.hosts.find(key); e != nil {
				hostsAnswers(name, types, e, answer)
				return 0
			}
		case fromDNS:
			last := i == len(sys.orderFor(key))-1
			now := time.Now()
			for _, t := range order {
				if types&t == 0 {
					continue
				}
				under := name
				if t == race.Prefix64 {
					under = prefixName
				}
				a, ok := r.cache.get(under, t, now)
				if !ok || a.Err != nil && !last {
					continue
				}
				a.Name = name
				types &^= t
				answer(a)
			}
			return types
		case fromSystem:
			return types
		}
	}
	return types
}

// Ask gets answers from wherever nsswitch.conf says and calls answer exactly once
// for each type, one call at a time, until ctx ends. It returns when the last
// answer is in; nothing that it started goes on after that.
func (r *Resolver) Ask(ctx context.Context, name string, types race.Types, answer func(Answer)) {
	sys := r.system()
	key := canonical(name)
	if types&race.Prefix64 != 0 {
		// The prefixes are asked for beside the rest: they have a name of their own.
		var wait sync.WaitGroup
		var mu sync.Mutex
		inner := answer
		answer = func(a Answer) {
			mu.Lock()
			defer mu.Unlock()
			inner(a)
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			r.askPrefixes(ctx, sys, func(a Answer) {
				a.Name = name
				answer(a)
			})
		}()
		defer wait.Wait()
		types &^= race.Prefix64
	}
	sources := sys.orderFor(key)
	for i, src := range sources {
		if types == 0 || ctx.Err() != nil {
			return
		}
		last := i == len(sources)-1
		switch src {
		case fromFiles:
			if e := sys.hosts.find(key); e != nil {
				hostsAnswers(name, types, e, answer)
				return
			}
			if last {
				refuse(name, types, "hosts", errNoHost(name, ""), answer)
			}
		case fromDNS:
			if strings.HasSuffix(key, ".onion") { // RFC 7686: never ask DNS
				refuse(name, types, "dns", errNoHost(name, ""), answer)
				return
			}
			types = r.askServers(ctx, sys, name, types, last, answer)
		case fromSystem:
			types = askSystem(ctx, name, types, last, answer)
		}
	}
}

func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

func hostsAnswers(name string, types race.Types, e *hostAddrs, answer func(Answer)) {
	for _, t := range order {
		if types&t == 0 {
			continue
		}
		a := Answer{Answer: race.Answer{Name: name, Type: t}, From: "hosts"}
		switch t {
		case race.A:
			a.Addrs = e.v4
		case race.AAAA:
			a.Addrs = e.v6
		}
		if len(a.Addrs) == 0 {
			a.Err = errNoRecord(name, "")
		}
		answer(a)
	}
}

func refuse(name string, types race.Types, from string, err error, answer func(Answer)) {
	for _, t := range order {
		if types&t != 0 {
			answer(Answer{Answer: race.Answer{Name: name, Type: t}, From: from, Err: err})
		}
	}
}

// askSystem is the slow lane: the C library, or what stands for it, answers for
// both families together.
func askSystem(ctx context.Context, name string, types race.Types, last bool,
	answer func(Answer)) race.Types {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		if last {
			refuse(name, types, "system", err, answer)
			return 0
		}
		return types
	}
	e := &hostAddrs{}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			e.v4 = append(e.v4, a)
		} else {
			e.v6 = append(e.v6, a)
		}
	}
	hostsAnswers(name, types, e, func(a Answer) {
		a.From = "system"
		answer(a)
	})
	return 0
}

func errNoHost(name, server string) error {
	return &net.DNSError{Err: "no such host", Name: name, Server: server, IsNotFound: true}
}

func errNoRecord(name, server string) error {
	return &net.DNSError{Err: "no such record", Name: name, Server: server, IsNotFound: true}
}

func errServer(what, name string, server netip.AddrPort) error {
	return &net.DNSError{Err: what, Name: name, Server: serverName(server), IsTemporary: true}
}

func serverName(s netip.AddrPort) string {
	if !s.IsValid() {
		return ""
	}
	return s.String()
}
