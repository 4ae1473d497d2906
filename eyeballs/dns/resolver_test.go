package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/weirnet/weir/eyeballs/eyeballstest"
)

const (
	typeA     = dnsmessage.TypeA
	typeAAAA  = dnsmessage.TypeAAAA
	typeHTTPS = dnsmessage.TypeHTTPS
)

var both = A | AAAA

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func startDNS(t *testing.T) *eyeballstest.DNS {
	t.Helper()
	d, err := eyeballstest.NewDNS("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// etc writes a directory like /etc for a resolver. The servers come first in resolv.conf, then the
// lines of files.
func etc(t *testing.T, files map[string]string, servers ...*eyeballstest.DNS) *Resolver {
	t.Helper()
	dir := t.TempDir()
	conf := ""
	for _, s := range servers {
		conf += fmt.Sprintf("nameserver [%s]:%d\n", s.Addr.Addr(), s.Addr.Port())
	}
	files["resolv.conf"] = conf + files["resolv.conf"]
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Resolver{Dir: dir}
}

// lookup collects the answers to all types, and how long each took.
func lookup(t *testing.T, r *Resolver, name string, types Type) (map[Type]Answer,
	map[Type]time.Duration) {
	t.Helper()
	return lookupThen(t, r, name, types, func(Answer) {})
}

// lookupThen is lookup, and calls a function with each answer as it comes.
func lookupThen(t *testing.T, r *Resolver, name string, types Type, each func(Answer)) (
	map[Type]Answer, map[Type]time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	got, took := map[Type]Answer{}, map[Type]time.Duration{}
	begin := time.Now()
	take := func(a Answer) {
		if _, twice := got[a.Type]; twice {
			t.Errorf("%v answered twice", a.Type)
		}
		if a.Name != name {
			t.Errorf("answer for %q to the question %q", a.Name, name)
		}
		got[a.Type], took[a.Type] = a, time.Since(begin)
		each(a)
	}
	if left := r.QueryLocal(name, types, take); left != 0 {
		r.Query(ctx, name, left, take)
	}
	for one := Type(1); one <= Prefix64; one <<= 1 {
		if _, ok := got[one]; types&one != 0 && !ok {
			t.Errorf("%v of %s was never answered", one, name)
		}
	}
	return got, took
}

// asked returns the questions since the last call, each once if some were sent again: a machine
// that stalls makes answers late.
func asked(d *eyeballstest.DNS, r *Resolver) (all []string) {
	q := d.Queries()
	if r.Stats().Resent == 0 {
		return q
	}
	for _, one := range q {
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

func wantAddrs(t *testing.T, a Answer, list ...string) {
	t.Helper()
	if !slices.Equal(a.Addrs, addrs(list...)) {
		t.Errorf("%s %v: got %v (%v), want %v", a.Name, a.Type, a.Addrs, a.Err, list)
	}
}

func TestAnswersComeAlone(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	answered := make(chan struct{})
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), Hold: answered})
	d.Set("host.test", typeAAAA,
		eyeballstest.Record{Addrs: addrs("2001:db8::1", "2001:db8::2"), CNAME: "alias.test"})
	// If AAAA waited for A, both would end with the resolver's time-out.
	got, _ := lookupThen(t, r, "host.test", both|HTTPS, func(a Answer) {
		if a.Type == AAAA {
			close(answered)
		}
	})
	wantAddrs(t, got[A], "192.0.2.1")
	wantAddrs(t, got[AAAA], "2001:db8::1", "2001:db8::2")
	if !isNotFound(got[HTTPS].Err) || got[HTTPS].NoName {
		t.Errorf("HTTPS: %+v", got[HTTPS])
	}
	// What is open after a second is sent again.
	if q := d.Queries(); len(q) < 3 || !slices.Equal(q[:3],
		[]string{"HTTPS host.test", "AAAA host.test", "A host.test"}) {
		t.Errorf("queries %q", q)
	}
}

func TestD1OneSocketBackToBack(t *testing.T) {
	// The order on the wire is asserted above; single-request holds A back.
	d := startDNS(t)
	r := etc(t, map[string]string{"resolv.conf": "options single-request\n"}, d)
	const late = time.Second
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1")})
	d.Set("host.test", typeAAAA,
		eyeballstest.Record{Addrs: addrs("2001:db8::1"), Delay: late})
	if _, took := lookup(t, r, "host.test", both); took[A] < late {
		t.Errorf("A was sent before AAAA had answered: %v", took)
	}
	answered := make(chan struct{})
	d.Set("host.test", typeAAAA,
		eyeballstest.Record{Addrs: addrs("2001:db8::1"), Hold: answered})
	r = etc(t, map[string]string{"resolv.conf": "options single-request-reopen\n"}, d)
	got, _ := lookupThen(t, r, "host.test", both, func(a Answer) {
		if a.Type == A { // with a socket each, it does not wait for AAAA
			close(answered)
		}
	})
	wantAddrs(t, got[AAAA], "2001:db8::1")
}

func TestBothPacketsLost(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), Lose: 1})
	d.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: addrs("2001:db8::1"), Lose: 1})
	got, took := lookup(t, r, "host.test", both)
	wantAddrs(t, got[AAAA], "2001:db8::1")
	if took[A] < 900*time.Millisecond {
		t.Errorf("took %v, want about a second", took)
	}
	if s := r.Stats(); s.Resent == 0 || s.Timeouts > 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestSeveralServersAreRaced(t *testing.T) {
	dead, slow, good := startDNS(t), startDNS(t), startDNS(t)
	dead.Set("host.test", typeA, eyeballstest.Record{Lose: -1})
	slow.Set("host.test", typeA,
		eyeballstest.Record{Addrs: addrs("192.0.2.7"), Hold: make(chan struct{})})
	good.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), TTL: 0})
	r := etc(t, map[string]string{}, dead, slow, good)
	got, took := lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.1")
	if took[A] < 2*ServerDelay {
		t.Errorf("took %v, want two times %v", took[A], ServerDelay)
	}
	// The server that answered comes first the next time.
	x := exchange{r: r, config: &r.system().config}
	if x.pickServers(); x.servers[0].addr != good.Addr {
		t.Errorf("%v comes first, want %v", x.servers[0].addr, good.Addr)
	}
	// After a refusal the next server gets the questions at once.
	failing := startDNS(t)
	failing.Set("host.test", typeA, eyeballstest.Record{RCode: dnsmessage.RCodeServerFailure})
	r = etc(t, map[string]string{"resolv.conf": "nameserver [127.0.0.1]:1\n"}, failing, good)
	r2 := etc(t, map[string]string{"resolv.conf": fmt.Sprintf("nameserver "+
		"[127.0.0.1]:1\nnameserver [127.0.0.1]:%d\n", good.Addr.Port())})
	for _, r := range []*Resolver{r, r2} {
		failed := make(chan struct{})
		good.Set("host.test", typeA,
			eyeballstest.Record{Addrs: addrs("192.0.2.1"), Hold: failed})
		go func() { // the answer does not come before the failure
			for r.Stats().ServerFail == 0 && t.Context().Err() == nil {
				time.Sleep(time.Millisecond)
			}
			close(failed)
		}()
		got, _ = lookup(t, r, "host.test", A)
		wantAddrs(t, got[A], "192.0.2.1")
		if s := r.Stats(); s.ServerFail == 0 || s.Timeouts > 0 {
			t.Errorf("after a failing server: %+v", s)
		}
	}
}

func TestAllServersFail(t *testing.T) {
	r := etc(t, map[string]string{"resolv.conf": "nameserver [127.0.0.1]:1\nnameserver " +
		"[127.0.0.1]:2\n"})
	got, _ := lookup(t, r, "host.test", both)
	var d *net.DNSError
	if err := got[A].Err; !errors.As(err, &d) || !d.IsTemporary || d.IsNotFound ||
		!strings.Contains(d.Error(), "refused") {
		t.Errorf("error %v", err)
	}
	if s := r.Stats(); s.Timeouts > 0 { // that both refuse is seen at once
		t.Errorf("stats %+v", s)
	}
}

func TestNoServerAnswers(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Lose: -1})
	r := etc(t, map[string]string{"resolv.conf": "options timeout:1 attempts:2\n"}, d)
	got, took := lookup(t, r, "host.test", both)
	if !isTimeout(got[A].Err) || !isNotFound(got[AAAA].Err) {
		t.Errorf("A %v, AAAA %v", got[A].Err, got[AAAA].Err)
	}
	if took[A] < 1900*time.Millisecond {
		t.Errorf("took %v, want timeout times attempts", took[A])
	}
	if s := r.Stats(); s.Timeouts != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestBogusAnswersAreIgnored(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), Forge: true})
	got, _ := lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.1")
	if s := r.Stats(); s.Bogus < 8 {
		t.Errorf("stats %+v", s)
	}
}

func TestMixedCase(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), MixCase: true})
	got, _ := lookup(t, r, "Host.Test", A)
	wantAddrs(t, got[A], "192.0.2.1")
}

func TestTruncatedGoesOverTCP(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	r.resend = time.Hour // an answer needs no second transmission
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("2001:db8::%x", i+1))
	}
	d.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: addrs(many...), Truncate: true})
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1")})
	got, _ := lookup(t, r, "host.test", both)
	wantAddrs(t, got[AAAA], many...)
	wantAddrs(t, got[A], "192.0.2.1")
	if s := r.Stats(); s.Truncated != 1 {
		t.Errorf("stats %+v", s)
	}
	r = etc(t, map[string]string{"resolv.conf": "options use-vc\n"}, d)
	got, _ = lookup(t, r, "host.test", both)
	wantAddrs(t, got[AAAA], many...)
	if s := r.Stats(); s.Truncated != 0 {
		t.Errorf("use-vc: sent over UDP first: %+v", s)
	}
}

func TestServerWithoutEDNS(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Addrs: addrs("192.0.2.1"), NoEDNS: true})
	r := etc(t, map[string]string{}, d)
	r.resend = time.Hour // an answer needs no second transmission
	got, _ := lookup(t, r, "host.test", A)
	wantAddrs(t, got[A], "192.0.2.1")
}

// TestServerWithoutEDNSOfSeveral: each question is asked again, over TCP as well, even if the
// server sends only a header.
func TestServerWithoutEDNSOfSeveral(t *testing.T) {
	for _, options := range []string{"", "options single-request-reopen\n", "options use-vc\n"} {
		for _, bare := range []bool{false, true} {
			d := startDNS(t)
			r := etc(t, map[string]string{"resolv.conf": options}, d)
			rec := eyeballstest.Record{NoEDNS: true, Bare: bare}
			d.Set("host.test", typeHTTPS, rec)
			rec.Addrs = addrs("192.0.2.1")
			d.Set("host.test", typeA, rec)
			rec.Addrs = addrs("2001:db8::1")
			d.Set("host.test", typeAAAA, rec)
			got, _ := lookup(t, r, "host.test", both|HTTPS)
			wantAddrs(t, got[A], "192.0.2.1")
			wantAddrs(t, got[AAAA], "2001:db8::1")
			if !isNotFound(got[HTTPS].Err) {
				t.Errorf("%q, bare %v: HTTPS: %v", options, bare, got[HTTPS].Err)
			}
		}
	}
}

// TestBareFormatError: a header, which needs no more than the id to forge, ends no question.
func TestBareFormatError(t *testing.T) {
	name := dnsmessage.MustNewName("host.test.")
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, Response: true,
		RCode: dnsmessage.RCodeFormatError}}
	msg, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	x := &exchange{questions: []question{{t: A, wire: typeA}}}
	for _, edns := range []bool{true, false} {
		sent := []sentQuestion{{id: 7, name: name, edns: edns}}
		if p := x.match(0, msg, sent); p.bogus == edns {
			t.Errorf("EDNS(0) %v: %+v", edns, p)
		}
	}
}

func TestCancelLeavesNothing(t *testing.T) {
	d := startDNS(t)
	d.Set("host.test", typeA, eyeballstest.Record{Lose: -1})
	r := etc(t, map[string]string{}, d)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	r.Query(ctx, "host.test", A, func(a Answer) { t.Errorf("answered %+v", a) })
}

func TestBadNames(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	for _, name := range []string{strings.Repeat("a", 64) + ".test", strings.Repeat("a.", 127) +
		"test", "a..test", ".test"} {
		got, _ := lookup(t, r, name, A)
		if !isNotFound(got[A].Err) {
			t.Errorf("%q: %v", name, got[A].Err)
		}
	}
	if q := d.Queries(); len(q) != 0 {
		t.Errorf("queries %q", q)
	}
}

func TestPrefix64(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{"resolv.conf": "search corp.test\noptions ndots:5\n"}, d)
	d.Set("ipv4only.arpa", typeAAAA,
		eyeballstest.Record{Addrs: addrs("64:ff9b::c000:aa", "64:ff9b::c000:ab"), TTL: 60})
	d.Set("host.test", typeAAAA, eyeballstest.Record{Addrs: addrs("2001:db8::1")})
	for range 2 {
		got, _ := lookup(t, r, "host.test", AAAA|Prefix64)
		if p := got[Prefix64].Prefixes; len(p) != 1 ||
			p[0] != netip.MustParsePrefix("64:ff9b::/96") {
			t.Errorf("prefixes %v", p)
		}
	}
	if n := strings.Count(strings.Join(asked(d, r), "\n"), "ipv4only.arpa"); n != 1 {
		t.Errorf("queried the prefix %d times", n)
	}
}

func TestHTTPSRecords(t *testing.T) {
	d := startDNS(t)
	r := etc(t, map[string]string{}, d)
	good := dnsmessage.SVCBResource{Priority: 1, Target: dnsmessage.MustNewName("."),
		Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamALPN, Value: []byte("\x02h2")}}}
	strange := dnsmessage.SVCBResource{Priority: 2, Target: dnsmessage.MustNewName("."),
		Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamMandatory, Value: []byte{0xff, 1}},
			{Key: 0xff01, Value: []byte("x")}}}
	broken := dnsmessage.SVCBResource{Priority: 3, Target: dnsmessage.MustNewName("."),
		Params: []dnsmessage.SVCParam{{Key: dnsmessage.SVCParamPort, Value: []byte{1}}}}
	d.Set("a.test", typeHTTPS, eyeballstest.Record{Services: []dnsmessage.SVCBResource{good,
		strange}})
	d.Set("b.test", typeHTTPS, eyeballstest.Record{Services: []dnsmessage.SVCBResource{good,
		broken}})
	got, _ := lookup(t, r, "a.test", HTTPS)
	if s := got[HTTPS].Services; len(s) != 1 || s[0].ALPN[0] != "h2" {
		t.Errorf("got %+v", s)
	}
	got, _ = lookup(t, r, "b.test", HTTPS)
	if s := got[HTTPS].Services; len(s) != 0 {
		t.Errorf("a malformed record must spoil its set, got %+v", s)
	}
}
