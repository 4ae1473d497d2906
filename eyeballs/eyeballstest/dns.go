package eyeballstest

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Record is the answer of a DNS server to one question, with the faults that it shows.
type Record struct {
	Addrs    []netip.Addr
	Services []dnsmessage.SVCBResource
	CNAME    string // sent first; Addrs then belong to it
	Host     string // of a PTR record
	TTL      uint32
	RCode    dnsmessage.RCode

	Delay    time.Duration
	Hold     <-chan struct{} // the answer waits until it is closed
	Lose     int             // the number of queries to lose first; negative: all
	Lame     bool            // send no records, like a server that knows only other names
	Truncate bool            // over UDP, set the TC bit and send no records
	NoEDNS   bool            // answer queries with EDNS(0) with a format error
	Bare     bool            // send that format error without the question
	MixCase  bool            // answer with swapped letter cases in the question
	Forge    bool            // over UDP, send forged answers before the real one
	Guess    int             // over UDP, send that many answers with wrong ids before the real one
	NoTCP    bool            // answer nothing over TCP
	AD       bool            // claim that the answer is authentic, if the query asks for that
}

// DNS is a DNS server on loopback that answers, delays and loses as its records say. Names without
// a record do not exist.
type DNS struct {
	Addr netip.AddrPort

	udp   *net.UDPConn
	tcp   net.Listener
	wait  sync.WaitGroup
	close chan struct{}
	read  chan struct{} // what Queries sends has been read

	mu      sync.Mutex
	records map[question]*Record // guarded by mu
	queries []string             // guarded by mu
}

type question struct {
	name string
	t    dnsmessage.Type
}

// NewDNS starts a server on an address such as 127.0.0.1:0.
func NewDNS(addr string) (*DNS, error) {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	// Both protocols use the same port: the one that UDP got may be in use by TCP.
	for try := 0; ; try++ {
		d := &DNS{records: map[question]*Record{}, close: make(chan struct{}),
			read: make(chan struct{})}
		if d.udp, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(ap)); err != nil {
			return nil, fmt.Errorf("test DNS server: %w", err)
		}
		d.Addr = d.udp.LocalAddr().(*net.UDPAddr).AddrPort()
		if d.tcp, err = net.Listen("tcp", d.Addr.String()); err != nil {
			d.udp.Close()
			if try == 20 {
				return nil, fmt.Errorf("test DNS server: %w", err)
			}
			continue
		}
		d.wait.Go(d.serveUDP)
		d.wait.Go(d.serveTCP)
		return d, nil
	}
}

// Close stops the server and waits until everything that it started has ended.
func (d *DNS) Close() {
	close(d.close)
	d.udp.Close()
	d.tcp.Close()
	d.wait.Wait()
}

// Set gives a name, without the final dot, a record of the type.
func (d *DNS) Set(name string, t dnsmessage.Type, r Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records[question{strings.ToLower(name), t}] = &r
}

// Clear forgets all records and all queries.
func (d *DNS) Clear() {
	d.catchUp()
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.records)
	d.queries = nil
}

// Queries returns the questions since the last call: "AAAA host.test". What was sent over UDP
// before the call is among them, even where the sender has not waited for the answer.
func (d *DNS) Queries() []string {
	d.catchUp()
	d.mu.Lock()
	defer d.mu.Unlock()
	q := d.queries
	d.queries = nil
	return q
}

// catchUp waits until the server has read all datagrams that have been sent to it: it sends itself
// an empty one behind them.
func (d *DNS) catchUp() {
	if _, err := d.udp.WriteToUDPAddrPort(nil, d.Addr); err != nil {
		return
	}
	select {
	case <-d.read:
	case <-d.close:
	}
}

func (d *DNS) serveUDP() {
	buf := make([]byte, 1500)
	for {
		n, from, err := d.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		if n == 0 && from == d.Addr {
			select {
			case d.read <- struct{}{}:
			case <-d.close:
			}
			continue
		}
		d.answer(buf[:n], false, func(msg []byte) { d.udp.WriteToUDPAddrPort(msg, from) })
	}
}

func (d *DNS) serveTCP() {
	for {
		c, err := d.tcp.Accept()
		if err != nil {
			return
		}
		d.wait.Go(func() {
			defer c.Close()
			c.SetDeadline(time.Now().Add(10 * time.Second))
			var size [2]byte
			if _, err := io.ReadFull(c, size[:]); err != nil {
				return
			}
			msg := make([]byte, binary.BigEndian.Uint16(size[:]))
			if _, err := io.ReadFull(c, msg); err != nil {
				return
			}
			sent := make(chan struct{})
			if d.answer(msg, true, func(msg []byte) {
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(msg))), msg...))
				close(sent)
			}) {
				select {
				case <-sent:
				case <-d.close:
				}
			}
		})
	}
}

// answer makes the answer to msg and sends it when its time has come. It reports whether there will
// be one.
func (d *DNS) answer(msg []byte, tcp bool, send func([]byte)) bool {
	var m dnsmessage.Message
	if m.Unpack(msg) != nil || len(m.Questions) != 1 {
		return false
	}
	q := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	d.mu.Lock()
	d.queries = append(d.queries, strings.TrimPrefix(q.Type.String(), "Type")+" "+name)
	r := d.records[question{name, q.Type}]
	lost := r != nil && r.Lose != 0
	if lost && r.Lose > 0 {
		r.Lose--
	}
	exists := r != nil
	if !exists {
		for k := range d.records {
			exists = exists || k.name == name
		}
	}
	rec := Record{RCode: dnsmessage.RCodeNameError}
	if exists {
		rec.RCode = dnsmessage.RCodeSuccess
	}
	if r != nil {
		rec = *r
	}
	d.mu.Unlock()
	if lost || tcp && rec.NoTCP {
		return false
	}
	edns := len(m.Additionals) > 0
	reply := rec.message(m.ID, q, tcp, edns)
	reply.AuthenticData = rec.AD && m.AuthenticData
	out, err := reply.Pack()
	if err != nil {
		return false
	}
	deliver := func() {
		for n := range rec.Guess {
			if !tcp {
				wrong := slices.Clone(out)
				binary.BigEndian.PutUint16(wrong, m.ID+1+uint16(n))
				send(wrong)
			}
		}
		if rec.Forge && !tcp {
			for _, f := range rec.forged(reply) {
				send(f)
			}
		}
		send(out)
	}
	if rec.Delay == 0 && rec.Hold == nil {
		deliver()
		return true
	}
	d.wait.Go(func() {
		if rec.Hold != nil {
			select {
			case <-rec.Hold:
			case <-d.close:
				return
			}
		}
		select {
		case <-time.After(rec.Delay):
			deliver()
		case <-d.close:
		}
	})
	return true
}

func (r *Record) message(id uint16, q dnsmessage.Question, tcp, edns bool) dnsmessage.Message {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: id, Response: true,
		RecursionAvailable: true, RCode: r.RCode}}
	m.Questions = []dnsmessage.Question{q}
	if r.MixCase {
		m.Questions[0].Name = swapCase(q.Name)
	}
	if r.NoEDNS && edns {
		m.RCode = dnsmessage.RCodeFormatError
		if r.Bare {
			m.Questions = nil
		}
		return m
	}
	if r.Truncate && !tcp {
		m.Truncated = true
		return m
	}
	if r.Lame {
		m.RecursionAvailable = false
		return m
	}
	ttl := r.TTL
	header := func(name dnsmessage.Name) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: ttl}
	}
	owner := q.Name
	if r.CNAME != "" {
		target := dnsmessage.MustNewName(r.CNAME + ".")
		m.Answers = append(m.Answers,
			dnsmessage.Resource{Header: header(owner),
				Body: &dnsmessage.CNAMEResource{CNAME: target}})
		owner = target
	}
	for _, a := range r.Addrs {
		var body dnsmessage.ResourceBody = &dnsmessage.AAAAResource{AAAA: a.As16()}
		if a.Is4() {
			body = &dnsmessage.AResource{A: a.As4()}
		}
		m.Answers = append(m.Answers, dnsmessage.Resource{Header: header(owner), Body: body})
	}
	if r.Host != "" {
		m.Answers = append(m.Answers,
			dnsmessage.Resource{Header: header(owner),
				Body: &dnsmessage.PTRResource{PTR: dnsmessage.MustNewName(r.Host + ".")}})
	}
	for _, s := range r.Services {
		m.Answers = append(m.Answers,
			dnsmessage.Resource{Header: header(owner),
				Body: &dnsmessage.HTTPSResource{SVCBResource: s}})
	}
	if len(m.Answers) == 0 {
		root := dnsmessage.MustNewName("test.")
		m.Authorities = append(m.Authorities,
			dnsmessage.Resource{Header: header(root),
				Body: &dnsmessage.SOAResource{NS: root, MBox: root, MinTTL: ttl}})
	}
	return m
}

// forged returns answers that must not count: with another id, to another question, and a query.
// All carry an address of the attacker.
func (r *Record) forged(m dnsmessage.Message) [][]byte {
	evil := *r
	evil.Addrs = []netip.Addr{netip.MustParseAddr("203.0.113.66")}
	evil.Services = nil
	q := m.Questions[0]
	wrongID := evil.message(m.ID+1, q, false, false)
	other := q
	other.Name = dnsmessage.MustNewName("evil.test.")
	wrongName := evil.message(m.ID, other, false, false)
	other = q
	other.Type = dnsmessage.TypeTXT
	wrongType := evil.message(m.ID, other, false, false)
	query := evil.message(m.ID, q, false, false)
	query.Response = false
	var out [][]byte
	for _, m := range []dnsmessage.Message{wrongID, wrongName, wrongType, query} {
		if b, err := m.Pack(); err == nil {
			out = append(out, b, b[:len(b)-3])
		}
	}
	return append(out, []byte{0}, nil)
}

func swapCase(n dnsmessage.Name) dnsmessage.Name {
	for i, c := range n.Data[:n.Length] {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' {
			n.Data[i] = c ^ 0x20
		}
	}
	return n
}

// Messages returns answers of many kinds to a question, good and forged, as seeds for a fuzzer.
func Messages(id uint16, name dnsmessage.Name, t dnsmessage.Type) (all [][]byte) {
	q := dnsmessage.Question{Name: name, Type: t, Class: dnsmessage.ClassINET}
	addr := netip.MustParseAddr("192.0.2.1")
	if t == dnsmessage.TypeAAAA {
		addr = netip.MustParseAddr("2001:db8::1")
	}
	service := dnsmessage.SVCBResource{Priority: 1, Target: dnsmessage.MustNewName("svc.test."),
		Params: []dnsmessage.SVCParam{
			{Key: dnsmessage.SVCParamALPN, Value: []byte("\x02h2\x02h3")},
			{Key: dnsmessage.SVCParamPort, Value: []byte{1, 187}}}}
	for _, r := range []Record{
		{}, {RCode: dnsmessage.RCodeNameError, TTL: 60}, {RCode: dnsmessage.RCodeServerFailure},
		{Truncate: true},
		{Addrs: []netip.Addr{addr, addr.Next()}, TTL: 60},
		{Addrs: []netip.Addr{addr}, CNAME: "alias.test"}, {CNAME: "host.test"},
		{Services: []dnsmessage.SVCBResource{service, {Target: dnsmessage.MustNewName(".")}}},
		{Addrs: []netip.Addr{addr}, MixCase: true},
	} {
		m := r.message(id, q, false, true)
		if b, err := m.Pack(); err == nil {
			all = append(all, b)
		}
		all = append(all, r.forged(m)...)
	}
	return all
}
