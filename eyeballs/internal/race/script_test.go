package race

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/svcb"
)

const (
	ms       = time.Millisecond
	allTypes = dns.HTTPS | dns.AAAA | dns.A
)

// script drives a machine by hand and logs its commands.
type script struct {
	t   *testing.T
	m   *Machine
	now time.Duration
	log []string
}

func newScript(t *testing.T, cfg Config) *script {
	if cfg.Name == "" {
		cfg.Name = "host.test"
	}
	if cfg.Port == 0 {
		cfg.Port = 443
	}
	if cfg.Types == 0 {
		cfg.Types = dns.AAAA | dns.A
	}
	s := &script{t: t, m: New(cfg)}
	s.step(Event{Kind: Begin})
	return s
}

func (s *script) step(ev Event) {
	for _, c := range s.m.Step(s.now, ev) {
		line := ""
		switch c.Kind {
		case Query:
			line = fmt.Sprintf("query %s %s", c.Name, c.Types)
		case Connect:
			line = fmt.Sprintf("connect %d %s", c.ID, c.Endpoint.Addr)
		case Cancel:
			line = fmt.Sprintf("cancel %d", c.ID)
		case Wake:
			line = fmt.Sprintf("wake %v", c.At)
		case Win:
			line = fmt.Sprintf("win %d", c.ID)
		case Lose:
			line = "lose"
		}
		s.log = append(s.log, fmt.Sprintf("%d: %s", s.now/ms, line))
	}
}

func (s *script) at(t time.Duration) *script { s.now = t; return s }

func (s *script) addrs(name string, typ dns.Type, addrs ...string) *script {
	a := dns.Answer{Name: name, Type: typ}
	for _, x := range addrs {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(x))
	}
	s.step(Event{Kind: Answered, Answer: a})
	return s
}

func (s *script) v6(addrs ...string) *script { return s.addrs("host.test", dns.AAAA, addrs...) }
func (s *script) v4(addrs ...string) *script { return s.addrs("host.test", dns.A, addrs...) }
func (s *script) https(name string, rs ...svcb.Record) *script {
	s.step(Event{Kind: Answered, Answer: dns.Answer{Name: name, Type: dns.HTTPS, Services: rs}})
	return s
}
func (s *script) tick() *script            { s.step(Event{Kind: Tick}); return s }
func (s *script) fail(id int) *script      { s.step(Event{Kind: Failed, ID: id}); return s }
func (s *script) connected(id int) *script { s.step(Event{Kind: Connected, ID: id}); return s }
func (s *script) finish(id int) *script    { s.step(Event{Kind: Finished, ID: id}); return s }

// want compares the commands since the last want, except Wake.
func (s *script) want(lines ...string) *script {
	s.t.Helper()
	got := slices.DeleteFunc(slices.Clone(s.log), func(l string) bool {
		return strings.Contains(l, ": wake ")
	})
	if !slices.Equal(got, lines) {
		s.t.Fatalf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(lines, "\n  "))
	}
	s.log = nil
	return s
}

func (s *script) wantWake(at time.Duration) *script {
	s.t.Helper()
	line := fmt.Sprintf("wake %v", at)
	if !slices.ContainsFunc(s.log, func(l string) bool { return strings.HasSuffix(l, line) }) {
		s.t.Fatalf("no %q in %q", line, s.log)
	}
	return s
}
