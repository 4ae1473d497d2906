package dns

import (
	"errors"
	"net"
	"net/netip"

	"golang.org/x/net/dns/dnsmessage"
)

// handle handles one packet. It reports whether the questions should go to the next server at once.
func (x *exchange) handle(p packet) bool {
	s := &x.servers[p.server]
	if p.bogus {
		x.bogus(p.server)
		return false
	}
	if p.question < 0 {
		return x.serverDown(p.server, p.err)
	}
	q := &x.questions[p.question]
	if q.done || s.tcpOnly && !p.tcp {
		return false
	}
	if p.folded {
		q.folded = true
		x.queryTCP(p.server, p.question)
		return false
	}
	if p.err != nil && p.tcp && q.folded && !s.tcpOnly && !s.foldsCase {
		s.foldsCase = true
		x.send(p.server)
		return false
	}
	if p.err != nil && q.folded && s.foldsCase && p.tcp {
		return false // the answer by datagram is still to come
	}
	if p.err != nil {
		return x.questionFailed(p.question, p.server, p.err)
	}
	if p.reply.truncated && !p.tcp {
		x.r.stats.truncated.Add(1)
		x.queryTCP(p.server, p.question)
		return false
	}
	switch p.reply.rcode {
	case dnsmessage.RCodeSuccess, dnsmessage.RCodeNameError:
		if p.reply.saysNothing() {
			return x.questionFailed(p.question, p.server,
				errServer("server sent no answer", x.full, s.addr))
		}
		x.questionAnswered(p.question, s.addr, &p.reply)
		return false
	case dnsmessage.RCodeFormatError, dnsmessage.RCodeNotImplemented:
		if p.edns {
			x.withoutEDNS(&p)
			return false
		}
	}
	return x.questionFailed(p.question, p.server,
		errServer("server failed: "+p.reply.rcode.String(), x.full, s.addr))
}

// withoutEDNS asks again, without EDNS(0), a server that did not understand it. Its answer to a
// query with EDNS(0) says nothing about the question: each of several queries gets such an answer.
func (x *exchange) withoutEDNS(p *packet) {
	s := &x.servers[p.server]
	first := !s.noEDNS
	s.noEDNS = true
	switch {
	case p.tcp:
		x.questions[p.question].tcp[p.server] = false
		x.queryTCP(p.server, p.question)
	case first:
		x.send(p.server) // all open questions
	}
}

// bogus counts a packet from a server's address that answers none of the questions. After maxBogus
// of them, datagrams from this server no longer count.
func (x *exchange) bogus(i int) {
	s := &x.servers[i]
	x.r.stats.bogus.Add(1)
	if s.bogus++; s.bogus < maxBogus || s.tcpOnly {
		return
	}
	s.tcpOnly = true
	for _, c := range s.conns {
		c.Close()
	}
	x.send(i)
}

// questionAnswered ends a question with the reply of a server.
func (x *exchange) questionAnswered(q int, addr netip.AddrPort, r *reply) {
	for i, s := range x.config.Servers {
		if s == addr && !x.config.Rotate && x.r.good.Load() != uint32(i) {
			x.r.good.Store(uint32(i))
		}
	}
	a := Answer{TTL: r.ttl, Authentic: r.ad && x.config.TrustAD, From: addr.String()}
	a.Addrs, a.Services, a.Host = r.addrs, r.services, r.host
	if len(a.Addrs) == 0 && len(a.Services) == 0 && a.Host == "" {
		if a.Err = errNoRecord(x.full, a.From); r.rcode == dnsmessage.RCodeNameError {
			a.NoName, a.Err = true, errNoHost(x.full, a.From)
		}
		if !r.cacheable {
			a.TTL = 0
		}
	}
	x.finish(q, a)
}

// finish ends a question with an answer, unless it has ended before.
func (x *exchange) finish(q int, a Answer) {
	if x.questions[q].done {
		return
	}
	x.questions[q].done = true
	x.open--
	a.Name, a.Type = x.full, x.questions[q].t
	x.answer(a)
}

func (q *question) failedAt(i int) bool { return i < len(q.failed) && q.failed[i] }

// questionFailed records that a server cannot answer a question, and ends the question if no server
// is left. It reports whether there is a server to which nothing was sent yet.
func (x *exchange) questionFailed(q, i int, err error) bool {
	question := &x.questions[q]
	if question.done || question.failedAt(i) {
		return false
	}
	x.r.stats.serverFail.Add(1)
	if question.failed == nil {
		question.failed = make([]bool, len(x.servers))
	}
	question.failed[i], question.err = true, err
	for s := range question.failed {
		if !question.failed[s] {
			return x.transmissions < len(x.servers)
		}
	}
	x.finish(q, Answer{Err: question.err, From: serverName(x.servers[i].addr)})
	return false
}

// serverDown gives a server up for all questions. It reports what questionFailed does.
func (x *exchange) serverDown(i int, err error) bool {
	s := &x.servers[i]
	if s.down || errors.Is(err, net.ErrClosed) {
		return false
	}
	s.down = true
	again := false
	failure := errServer(err.Error(), x.full, s.addr)
	for q := range x.questions {
		if x.questionFailed(q, i, failure) {
			again = true
		}
	}
	return again
}

// expire ends the questions that no server has answered.
func (x *exchange) expire() {
	for q := range x.questions {
		if question := &x.questions[q]; !question.done {
			err := question.err
			if err == nil {
				x.r.stats.timeouts.Add(1)
				err = &net.DNSError{Err: "no server answered in time", Name: x.full,
					IsTimeout: true, IsTemporary: true}
			}
			x.finish(q, Answer{Err: err, From: "dns"})
		}
	}
}
