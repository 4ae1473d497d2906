package dns

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// handle takes one packet in. It reports whether the next server should be asked
// at once.
func (f *flight) handle(p packet) bool {
	s := &f.servers[p.server]
	if p.bogus {
		f.bogus(p.server)
		return false
	}
	if p.query < 0 {
		return f.lost(p.server, p.err)
	}
	q := &f.queries[p.query]
	if q.done || s.guessed && !p.tcp {
		return false
	}
	if p.folded {
		q.folded = true
		f.overTCP(p.server, p.query)
		return false
	}
	if p.err != nil && p.tcp && q.folded && !s.guessed && !s.folds {
		s.folds = true
		f.send(p.server)
		return false
	}
	if p.err != nil && q.folded && s.folds && p.tcp {
		return false // the datagram goes on
	}
	if p.err != nil {
		return f.fails(p.query, p.server, p.err)
	}
	if p.reply.truncated && !p.tcp {
		f.r.stats.truncated.Add(1)
		f.overTCP(p.server, p.query)
		return false
	}
	switch p.reply.rcode {
	case dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError:
		f.succeed(p.query, s.addr, &p.reply)
		return false
	case dnsmessage.RCodeFormatError, dnsmessage.RCodeNotImplemented:
		if !s.plain {
			s.plain = true
			f.send(p.server)
			return false
		}
	}
	return f.fails(p.query, p.server,
		errServer("server failed: "+p.reply.rcode.String(), f.full, s.addr))
}

// bogus counts a packet from a server's address that answers nothing. Of too many somebody is taken
// to guess: what comes by datagrams is no longer believed.
func (f *flight) bogus(i int) {
	s := &f.servers[i]
	f.r.stats.bogus.Add(1)
	if s.bogus++; s.bogus < maxBogus || s.guessed {
		return
	}
	s.guessed = true
	for _, c := range s.conns {
		c.Close()
	}
	f.send(i)
}

func (f *flight) succeed(q int, addr netip.AddrPort, r *reply) {
	for i, s := range f.config.Servers {
		if s == addr && !f.config.Rotate && f.r.good.Load() != uint32(i) {
			f.r.good.Store(uint32(i))
		}
	}
	a := Answer{TTL: r.ttl, Authentic: r.ad && f.config.TrustAD, From: addr.String()}
	a.Addrs, a.Services, a.Host = r.addrs, r.services, r.host
	if len(a.Addrs) == 0 && len(a.Services) == 0 && a.Host == "" {
		if a.Err = errNoRecord(f.full, a.From); r.rcode == dnsmessage.RCodeNameError {
			a.NoName, a.Err = true, errNoHost(f.full, a.From)
		}
		if !r.cacheable {
			a.TTL = 0
		}
	}
	f.finish(q, a)
}

func (f *flight) finish(q int, a Answer) {
	if f.queries[q].done {
		return
	}
	f.queries[q].done = true
	f.open--
	a.Name, a.Type = f.full, f.queries[q].t
	f.answer(a)
}

func (q *query) failedAt(i int) bool { return i < len(q.failed) && q.failed[i] }

// fails notes that a server cannot answer a question, and ends the question when
// none is left. It reports whether a server that was not asked yet is left.
func (f *flight) fails(q, i int, err error) bool {
	query := &f.queries[q]
	if query.done || query.failedAt(i) {
		return false
	}
	f.r.stats.serverFail.Add(1)
	if query.failed == nil {
		query.failed = make([]bool, len(f.servers))
	}
	query.failed[i], query.err = true, err
	for s := range query.failed {
		if !query.failed[s] {
			return f.asked < len(f.servers)
		}
	}
	f.finish(q, Answer{Err: query.err, From: serverName(f.servers[i].addr)})
	return false
}

// lost gives up on a server for all questions.
func (f *flight) lost(i int, err error) bool {
	s := &f.servers[i]
	if s.dead || errors.Is(err, net.ErrClosed) {
		return false
	}
	s.dead = true
	again := false
	failure := errServer(err.Error(), f.full, s.addr)
	for q := range f.queries {
		if f.fails(q, i, failure) {
			again = true
		}
	}
	return again
}

// expire ends the questions that nobody answered.
func (f *flight) expire() {
	for q := range f.queries {
		if query := &f.queries[q]; !query.done {
			err := query.err
			if err == nil {
				f.r.stats.timeouts.Add(1)
				err = &net.DNSError{Err: "no server answered in time", Name: f.full,
					IsTimeout: true, IsTemporary: true}
			}
			f.finish(q, Answer{Err: err, From: "dns"})
		}
	}
}
