package main

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// passes are the probes that were answered.
type passes struct {
	mu    sync.Mutex
	ports map[string]*pass // guarded by mu
}

// pass is one refused port that answered: how often, and when first and last.
type pass struct {
	n           int64
	first, last time.Time
}

func (p *passes) add(to netip.Addr, port uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ports == nil {
		p.ports = map[string]*pass{}
	}
	at, now := netip.AddrPortFrom(to, port).String(), time.Now()
	if p.ports[at] == nil {
		p.ports[at] = &pass{first: now}
	}
	p.ports[at].n++
	p.ports[at].last = now
}

func (p *passes) count() (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.ports {
		n += a.n
	}
	return n
}

// String names the ports that answered.
func (p *passes) String() (text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range slices.Sorted(maps.Keys(p.ports)) {
		a := p.ports[at]
		text += fmt.Sprintf(" %s answered %d from %s to %s", at, a.n,
			a.first.Format("15:04:05.000"), a.last.Format("15:04:05.000"))
	}
	return text
}
