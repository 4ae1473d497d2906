package dns

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/eyeballs/internal/nat64"
)

// Resolver looks names up. The zero value follows the files in /etc. It is safe
// for concurrent use and must not be copied.
type Resolver struct {
	// Dir is where resolv.conf, hosts and nsswitch.conf are; "" means /etc.
	Dir string

	sys    atomic.Pointer[system]
	reload sync.Mutex
	cache  cache
	good   atomic.Uint32 // index of the server that answered last, or of the next one with rotate
	stats  counters
	resend time.Duration // Resend, or what a test has instead
}

// Stats counts what went wrong with queries.
type Stats struct {
	Bogus      uint64 // packets that answer none of the questions
	Resent     uint64 // transmissions after the first
	Truncated  uint64 // truncated answers, after which the question went over TCP
	ServerFail uint64 // servers that refused, failed, or could not be reached
	Timeouts   uint64 // questions that no server answered
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

// Static reports whether the hosts file or the rule for localhost has the name.
func (r *Resolver) Static(name string) bool {
	return r.system().hosts.find(canonical(name)) != nil
}

// prefixName is the name that is queried for Prefix64. It is rooted: no search domain applies.
const prefixName = nat64.Name + "."

// QueryLocal answers what needs no packet: names of the hosts file and answers in the cache. It
// calls answer before it returns, once for each type that it answers, and returns the other types.
func (r *Resolver) QueryLocal(name string, types Type, answer func(Answer)) Type {
	sys := r.system()
	key := canonical(name)
	for i, src := range sys.orderFor(key) {
		switch src {
		case fromFiles:
			if e := sys.hosts.find(key); e != nil {
				answerHosts(name, types, "hosts", e, answer)
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
				if t == Prefix64 {
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

// Query looks a name up in the sources of nsswitch.conf. It calls answer exactly once for each
// type, one call at a time, until ctx ends. It returns after the last answer, and everything that
// it started has ended by then.
func (r *Resolver) Query(ctx context.Context, name string, types Type, answer func(Answer)) {
	sys := r.system()
	key := canonical(name)
	if types&Prefix64 != 0 {
		// The prefixes are queried in parallel: they have their own name.
		var wait sync.WaitGroup
		var mu sync.Mutex
		inner := answer
		answer = func(a Answer) {
			mu.Lock()
			defer mu.Unlock()
			inner(a)
		}
		wait.Go(func() {
			r.queryPrefixes(ctx, sys, func(a Answer) {
				a.Name = name
				answer(a)
			})
		})
		defer wait.Wait()
		types &^= Prefix64
	}
	sources := sys.orderFor(key)
	for i, src := range sources {
		if types == 0 || ctx.Err() != nil {
			return
		}
		last := i == len(sources)-1
		q := query{name, types, answer}
		switch src {
		case fromFiles:
			if e := sys.hosts.find(key); e != nil {
				answerHosts(name, types, "hosts", e, answer)
				return
			}
			if last {
				q.refuse("hosts", errNoHost(name, ""))
			}
		case fromDNS:
			if strings.HasSuffix(key, ".onion") { // never goes to DNS (RFC 7686)
				q.refuse("dns", errNoHost(name, ""))
				return
			}
			types = r.queryServers(ctx, sys, q, last)
		case fromSystem:
			types = querySystem(ctx, q, last)
		}
	}
}

func canonical(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// querySystem asks the C library, or its replacement in package net, which answers for both
// families together. That is as slow as the slower one.
func querySystem(ctx context.Context, q query, last bool) Type {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", q.name)
	if err != nil {
		if last {
			q.refuse("system", err)
			return 0
		}
		return q.types
	}
	e := &hostAddrs{}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() {
			e.v4 = append(e.v4, a)
		} else {
			e.v6 = append(e.v6, a)
		}
	}
	answerHosts(q.name, q.types, "system", e, q.answer)
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
