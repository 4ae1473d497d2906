package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/offline"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/rule/netfilter"
)

// sets is where the rule sets are.
const sets = "../../rule/netfilter/testdata"

// perSet is how many packets show both verdicts of each rule set.
const perSet = 2000

// TestDiffer sends random packets through netfilter with the rules of the source, and through the
// user-space engine with the imported ones. Both have to give the same verdict. No packet passes
// that netfilter refuses, whatever it is.
func TestDiffer(t *testing.T) { compareSets(t, perSet/5) }

// TestLongDiffer sends more.
func TestLongDiffer(t *testing.T) { compareSets(t, perSet) }

// compareSets sends so many packets to each rule set, unless WEIR_DECISIONS says how many go to all
// of them together.
func compareSets(t *testing.T, n int) {
	t.Helper()
	nstest.RequireRoot(t)
	names, err := filepath.Glob(sets + "/*.source*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no rule sets in %s: %v", sets, err)
	}
	if all, err := strconv.Atoi(os.Getenv("WEIR_DECISIONS")); err == nil {
		n = max(1, all/len(names))
	}
	seed := testrand.Seed(t)
	for _, name := range names {
		t.Run(strings.TrimPrefix(name, sets+"/"), func(t *testing.T) { differ(t, name, seed, n) })
	}
}

// differ compares one rule set.
func differ(t *testing.T, name string, seed uint64, n int) {
	src := readSet(t, name)
	result, err := netfilter.Import(src, ofHost())
	if err != nil {
		t.Fatal(err)
	}
	lift(result)
	h := newHost(t)
	load(t, h, src, result)
	hash := fnv.New64a()
	hash.Write([]byte(name))
	tally, err := compare(t, h, result, seed^hash.Sum64(), n)
	if err != nil {
		t.Fatalf("%v\n%s", err, result.Text)
	}
	t.Log(tally)
	if n >= perSet && (tally.passed < n/50 || tally.refused < n/50) {
		t.Errorf("nearly all packets got the same verdict: %v", tally)
	}
}

// tally counts packets by their verdicts.
type tally struct{ passed, known, refused, byWeir int }

func (t tally) String() string {
	return fmt.Sprintf("%d packets passed, %d of them of known flows; %d were refused, %d by Weir "+
		"alone", t.passed, t.known, t.refused+t.byWeir, t.byWeir)
}

// compare sends random packets, and returns an error for the first that gets two verdicts.
func compare(t *testing.T, h *host, result *netfilter.Result, seed uint64, n int) (tally, error) {
	w := newWeir(t, h, result)
	g := newGenerator(seed, h.devices, result)
	var count tally
	for i := range n {
		s := g.next()
		theirs, err := h.meets(s.from, s.pkt)
		if err != nil {
			return count, fmt.Errorf("%s: %w", describe(&s), err)
		}
		ours, why := w.meets(&s)
		if ours && !theirs || theirs && !ours && s.kind == exact {
			return count, fmt.Errorf("packet %d, %s: netfilter passes it: %v, Weir: %v (%s)", i,
				describe(&s), theirs, ours, why)
		}
		switch {
		case !theirs:
			count.refused++
		case !ours:
			count.byWeir++
		default:
			count.passed++
		}
		if ours && theirs {
			if s.what == "later" {
				count.known++
			}
			g.passed(&s)
		} else {
			g.refused(&s)
		}
	}
	return count, nil
}

// TestDifferFinds changes one rule of an imported set: the comparison notices it.
func TestDifferFinds(t *testing.T) {
	nstest.RequireRoot(t)
	src := readSet(t, sets+"/fail2ban.source")
	for _, change := range [][2]string{
		{"unreach port ip from 198.51.100.0/25", "allow ip from 198.51.100.0/25"},
		{"allow tcp from any to any 80,443 setup record-state", "count ip from any to any"},
		{"check-state", "count ip from any to any"},
		{"setup record-state", "setup"},
	} {
		result, err := netfilter.Import(src, ofHost())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(result.Text, change[0]) {
			t.Fatalf("no rule %q in\n%s", change[0], result.Text)
		}
		text := strings.ReplaceAll(result.Text, change[0], change[1])
		if result.Rules, err = rule.ParseFile("changed", text, nil); err != nil {
			t.Fatal(err)
		}
		h := newHost(t)
		load(t, h, src, result)
		if _, err := compare(t, h, result, 1, 20000); err == nil {
			t.Errorf("%q instead of %q makes no difference", change[1], change[0])
		}
	}
}

func describe(s *sent) string {
	from := "from the host"
	if s.from != nil {
		from = "in " + s.from.name
	}
	return fmt.Sprintf("%s, %s: % x", s.what, from, s.pkt)
}

// readSet reads a rule set: a file, or all files of a directory.
func readSet(t *testing.T, name string) (all []netfilter.Source) {
	t.Helper()
	files := []string{name}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		files, _ = filepath.Glob(name + "/*")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, netfilter.Source{Name: filepath.Base(f), Text: string(b)})
	}
	return all
}

// weir is the imported rule set in an engine.
type weir struct {
	evaluate func(*firewall.Input, []byte) (firewall.Verdict, error)
	gen      *host
	now      time.Duration
	index    map[string]uint32
	routes   func(netip.Addr) *device
}

func newWeir(t *testing.T, h *host, result *netfilter.Result) *weir {
	t.Helper()
	p, err := rule.Compile(result.Rules, rule.CompileOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	o := firewall.DefaultOptions()
	o.MaxPerSource = 0
	for _, d := range []*time.Duration{&o.Timeouts.Syn, &o.Timeouts.UDP, &o.Timeouts.Short,
		&o.Timeouts.UDPReply} {
		*d = time.Hour
	}
	w := &weir{gen: h, index: map[string]uint32{}}
	var ifs []firewall.Interface
	var routes []firewall.Route
	for i, d := range h.devices {
		index := uint32(i + 2)
		w.index[d.name] = index
		ifs = append(ifs, firewall.Interface{Index: index, Name: d.name, Addrs: d.networks,
			Router6: true})
		for _, n := range d.networks {
			routes = append(routes, firewall.Route{Dst: n.Masked(), Interface: index})
		}
	}
	for _, p := range prefixes("0.0.0.0/0 ::/0") {
		routes = append(routes, firewall.Route{Dst: p, Interface: 2})
	}
	e, err := offline.Engine(o, p, result.Rules, ifs, routes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	w.evaluate = func(in *firewall.Input, pkt []byte) (firewall.Verdict, error) {
		return e.Worker(0).Evaluate(in, pkt), nil
	}
	g := generator{devices: h.devices}
	w.routes = g.route
	return w
}

// meets evaluates a packet as the hooks of a host would, and says why it was refused.
func (w *weir) meets(s *sent) (bool, string) {
	w.now += time.Microsecond
	dst := destination(s.pkt)
	g := generator{devices: w.gen.devices}
	in := firewall.Input{Now: w.now}
	if s.from != nil {
		in.Hook.Recv = w.index[s.from.name]
		if v, err := w.evaluate(&in, s.pkt); err != nil || !v.Pass {
			return false, fmt.Sprintf("in: %v of rule %d, %v", v.Reason, v.Rule, err)
		}
		if g.isLocal(dst) || g.isBroadcast(dst) || dst.IsMulticast() {
			return true, ""
		}
	}
	pkt := s.pkt
	if s.from != nil {
		pkt = forwarded(pkt)
	}
	in.Hook.Dir, in.Hook.Xmit = firewall.Out, w.index[w.routes(dst).name]
	if v, err := w.evaluate(&in, pkt); err != nil || !v.Pass {
		return false, fmt.Sprintf("out: %v of rule %d, %v", v.Reason, v.Rule, err)
	}
	return true, ""
}

// forwarded returns a packet as a router passes it on: with a TTL that is one less.
func forwarded(pkt []byte) []byte {
	pkt = bytes.Clone(pkt)
	if pkt[0]>>4 == 6 {
		pkt[7]--
		return pkt
	}
	pkt[8]--
	sum := uint32(binary.BigEndian.Uint16(pkt[10:])) + 0x100 // RFC 1624
	binary.BigEndian.PutUint16(pkt[10:], uint16(sum+sum>>16))
	return pkt
}

func destination(pkt []byte) netip.Addr {
	if pkt[0]>>4 == 4 {
		return netip.AddrFrom4([4]byte(pkt[16:20]))
	}
	return netip.AddrFrom16([16]byte(pkt[24:40]))
}
