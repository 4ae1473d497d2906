package overlay

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
)

const (
	// lookupTime is how long a lookup may take.
	lookupTime = 3 * time.Second
	// nameGrace is how long a new peer waits for its names, so that their addresses keep the order
	// of the endpoints.
	nameGrace = 50 * time.Millisecond
	// maxNameAddrs is how many addresses of each family a name has as an endpoint: a batch to a
	// silent peer goes to all. Who answers for the name chooses them.
	maxNameAddrs = 8
)

// endpoints are the configured endpoints of a peer: addresses, and names with what they stood for
// when they were last looked up.
type endpoints struct {
	resolver *dns.Resolver
	entries  []endpointEntry

	mu sync.Mutex // guards the addresses of entries
}

// endpointEntry is one endpoint.
type endpointEntry struct {
	host      string // empty for an address
	port      uint16
	six, four []netip.Addr
}

// newEndpoints expects endpoints that Peer.check has accepted. It looks up no name.
func newEndpoints(resolver *dns.Resolver, texts []string) *endpoints {
	e := &endpoints{resolver: resolver, entries: make([]endpointEntry, len(texts))}
	for i, text := range texts {
		p := &e.entries[i]
		if a, err := netip.ParseAddrPort(text); err == nil {
			// a single one, whatever its family
			p.port, p.four = a.Port(), []netip.Addr{a.Addr().Unmap()}
			continue
		}
		host, port, _ := net.SplitHostPort(text)
		n, _ := strconv.ParseUint(port, 10, 16)
		p.host, p.port = host, uint16(n)
	}
	return e
}

// named reports whether there is a name to look up.
func (e *endpoints) named() bool {
	for i := range e.entries {
		if e.entries[i].host != "" {
			return true
		}
	}
	return false
}

// list returns the known addresses, each once, in the order of the endpoints. Those of a name
// alternate by family as in RFC 8305 section 4: handshakes go to one after the other.
func (e *endpoints) list() (list []netip.AddrPort) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.entries {
		p := &e.entries[i]
		add := func(from []netip.Addr, n int) {
			if n >= len(from) {
				return
			}
			if a := netip.AddrPortFrom(from[n].Unmap(), p.port); !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
		for n := range max(len(p.six), len(p.four)) {
			add(p.six, n)
			add(p.four, n)
		}
	}
	return list
}

// lookUp looks all names up at once, and calls news after every answer that changed the list, from
// several goroutines. It returns when all are answered or ctx ends. Its error lists the names that
// have no address now.
func (e *endpoints) lookUp(ctx context.Context, news func()) error {
	errs := make([]error, len(e.entries))
	var wait sync.WaitGroup
	for i := range e.entries {
		if e.entries[i].host != "" {
			wait.Go(func() { errs[i] = e.lookUpOne(ctx, &e.entries[i], news) })
		}
	}
	wait.Wait()
	return errors.Join(errs...)
}

// lookUpOne looks up both families of one name: in the hosts file and the cache first, then by DNS.
// A family without an answer keeps the addresses that it had.
func (e *endpoints) lookUpOne(ctx context.Context, p *endpointEntry, news func()) error {
	var errs []error
	take := func(a dns.Answer) {
		var missing *net.DNSError
		if errs = append(errs, a.Err); a.Err != nil &&
			!(errors.As(a.Err, &missing) && missing.IsNotFound) {
			return
		}
		if e.set(p, a) {
			news()
		}
	}
	if left := e.resolver.QueryLocal(p.host, dns.A|dns.AAAA, take); left != 0 {
		e.resolver.Query(ctx, p.host, left, take)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(p.six)+len(p.four) > 0 {
		return nil
	}
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return err
	}
	return &net.DNSError{Err: "no address", Name: p.host, IsNotFound: true}
}

// set stores the addresses of one family and reports whether they changed.
func (e *endpoints) set(p *endpointEntry, a dns.Answer) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	family := &p.four
	if a.Type == dns.AAAA {
		family = &p.six
	}
	addrs := a.Addrs[:min(len(a.Addrs), maxNameAddrs)]
	if slices.Equal(*family, addrs) {
		return false
	}
	*family = slices.Clone(addrs)
	return true
}
