package kernel

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/packet"
)

// policyQuery is what the function protected of bpf/lib/ipsec.h is asked.
type policyQuery struct {
	src, dst    netip.Addr
	proto       uint8
	ports, mark uint32
	forward     bool
	answer      bool // about an answer, with any protocol, ports and mark
}

// protects is the reference model of the search: the first policy that matches decides.
func (q policyQuery) protects(policies []Policy) bool {
	src, dst := q.src, q.dst
	if q.answer {
		src, dst = dst, src
	}
	for _, p := range policies {
		if p.Forward != q.forward || !p.Src.Contains(src) || !p.Dst.Contains(dst) {
			continue
		}
		all := p.Proto == 0 && p.PortsMask == 0 && p.MarkMask == 0
		if q.answer && !p.Protects && !all {
			continue
		}
		if q.answer || (p.Proto == 0 || p.Proto == q.proto) &&
			p.Ports&p.PortsMask == q.ports&p.PortsMask && p.Mark&p.MarkMask == q.mark&p.MarkMask {
			return p.Protects
		}
	}
	return false
}

// packetSize is the size of the packet, with which struct cpu begins.
const packetSize = unsafe.Sizeof(weirCpu{}.Packet)

// bytes returns a query as the program of askingProgram reads it: the packet and the arguments.
func (q policyQuery) bytes() []byte {
	var c weirCpu
	p := &c.Packet
	p.SrcHi, p.SrcLo = packet.AddrWords(q.src)
	p.DstHi, p.DstLo = packet.AddrWords(q.dst)
	p.Version, p.Proto, p.Ports = 6, q.proto, q.ports
	if q.src.Is4() {
		p.Version = 4
	}
	p.IcmpType, p.IcmpCode = uint8(q.ports>>16), uint8(q.ports)
	way := uint32(policyOut)
	if q.forward {
		way = policyForward
	}
	return slices.Concat(bytesOf([]weirCpu{c})[:packetSize],
		bytesOf([]uint32{way, bit(q.answer), q.mark}))
}

// askingProgram loads a program that calls protected about the packet that it is given.
func (e *Engine) askingProgram(t testing.TB) *ebpf.Program {
	t.Helper()
	spec, err := readPrograms()
	if err != nil {
		t.Fatal(err)
	}
	e.sizeAsLoaded(spec)
	p := spec.Programs["weir_in_slow"]
	begin := &p.Instructions[0]
	code := asm.Instructions{
		btf.WithFuncMetadata(asm.Mov.Reg(asm.R6, asm.R1), btf.FuncMetadata(begin)).
			WithSymbol(begin.Symbol()).WithSource(begin.Source()),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference("cpus"),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Reg(asm.R7, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, 0),
		asm.Mov.Reg(asm.R3, asm.R7), asm.Mov.Imm(asm.R4, int32(packetSize)),
		asm.FnSkbLoadBytes.Call(),
		asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(packetSize)),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, -16), asm.Mov.Imm(asm.R4, 12),
		asm.FnSkbLoadBytes.Call(),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.LoadMem(asm.R2, asm.RFP, -16, asm.Word), asm.LoadMem(asm.R3, asm.RFP, -12, asm.Word),
		asm.LoadMem(asm.R4, asm.RFP, -8, asm.Word),
		asm.Call.Label("protected"),
		asm.Return().WithSymbol("out"),
	}
	wanted := false
	for i := range p.Instructions {
		if f := btf.FuncMetadata(&p.Instructions[i]); f != nil {
			wanted = f.Name == "protected" || f.Name == "ask_policy"
		}
		if wanted {
			code = append(code, p.Instructions[i])
		}
	}
	p.Instructions = code
	var asks *ebpf.Program
	if err := e.load(spec, map[string]**ebpf.Program{"weir_in_slow": &asks}); err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() { asks.Close() })
	return asks
}

// ask runs that program.
func ask(t testing.TB, asks *ebpf.Program, q policyQuery) bool {
	t.Helper()
	code, err := asks.Run(&ebpf.RunOptions{Data: q.bytes()})
	if err != nil {
		t.Fatal(err)
	}
	return code != 0
}

// randomAddr returns one of few addresses.
func randomAddr(random *rand.Rand, six bool) netip.Addr {
	if six {
		return netip.AddrFrom16([16]byte{0xfd, byte(random.IntN(2)), 7: byte(random.IntN(2)),
			8: byte(random.IntN(2)), 15: byte(random.IntN(6))})
	}
	return netip.AddrFrom4([4]byte{10, byte(random.IntN(2)), byte(random.IntN(2)),
		byte(random.IntN(6))})
}

// randomPolicies returns policies of few addresses, many of which match the same packets.
func randomPolicies(random *rand.Rand, n int) (all []Policy) {
	lengths := [2][]int{{0, 8, 16, 31, 32, 32}, {0, 16, 64, 65, 127, 128, 128}}
	shortest := random.IntN(5)
	for range n {
		six := random.IntN(2)
		bits := lengths[six][shortest:]
		prefix := func() netip.Prefix {
			return netip.PrefixFrom(randomAddr(random, six == 1), bits[random.IntN(len(bits))])
		}
		p := Policy{Src: prefix(), Dst: prefix(), Forward: random.IntN(3) == 0,
			Protects: random.IntN(3) > 0}
		if random.IntN(2) == 0 {
			p.Proto = []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP}[random.IntN(3)]
			p.PortsMask = []uint32{0, 0xffff, 0xffff0000}[random.IntN(3)]
			p.Ports = uint32(random.IntN(3))<<16 | uint32(random.IntN(3))
		}
		if random.IntN(4) == 0 {
			p.Mark, p.MarkMask = uint32(random.IntN(2)), 3
		}
		all = append(all, p)
	}
	return all
}

func randomQuery(random *rand.Rand) policyQuery {
	six := random.IntN(2) == 1
	return policyQuery{src: randomAddr(random, six), dst: randomAddr(random, six),
		proto: []uint8{packet.ProtoTCP, packet.ProtoUDP, packet.ProtoICMP}[random.IntN(3)],
		ports: uint32(random.IntN(3))<<16 | uint32(random.IntN(3)), mark: uint32(random.IntN(4)),
		forward: random.IntN(3) == 0, answer: random.IntN(2) == 0}
}

// TestRandomPolicies compares what the programs find with the reference model.
func TestRandomPolicies(t *testing.T) {
	e := newEngine(t)
	asks := e.askingProgram(t)
	random := rand.New(rand.NewPCG(testrand.Seed(t), 0))
	found := map[bool]int{}
	for _, most := range []int{1, 2, 4, 10, 30, 100, 300, maxPolicies} {
		for range 8 {
			all := randomPolicies(random, max(most/2, 1)+random.IntN(most/2+1))
			if err := e.SetStack(false, all); err != nil {
				t.Fatal(err)
			}
			for range 250 {
				q := randomQuery(random)
				got, want := ask(t, asks, q), q.protects(all)
				found[got]++
				if got != want {
					t.Fatalf("%d policies: %+v: %v, want %v", len(all), q, got, want)
				}
			}
		}
	}
	if found[true] < 100 || found[false] < 100 {
		t.Errorf("the queries are not mixed: %v", found)
	}
}

// TestPoliciesChangeAtOnce: a search is among the policies of before a change or those of after it.
func TestPoliciesChangeAtOnce(t *testing.T) {
	e := newEngine(t)
	asks := e.askingProgram(t)
	wanted, other := policy("10.0.0.1/32", "10.0.0.2/32"), policy("10.0.0.1/32", "10.0.0.3/32")
	many := slices.Repeat([]Policy{other}, 500)
	sets := [][]Policy{slices.Concat([]Policy{wanted}, many), slices.Concat(many, []Policy{wanted})}
	// with rules in force packets are waited for
	if err := errors.Join(e.Load(compile(t, openRules)), e.SetStack(false, sets[0])); err != nil {
		t.Fatal(err)
	}
	q := policyQuery{src: netip.MustParseAddr("10.0.0.1"), dst: netip.MustParseAddr("10.0.0.2"),
		proto: packet.ProtoTCP}
	changed := make(chan error, 1)
	go func() {
		var errs []error
		for i := range 50 {
			errs = append(errs, e.SetStack(false, sets[1-i%2]))
		}
		changed <- errors.Join(errs...)
	}()
	asked, missed := 0, 0
	for done := false; !done; asked++ {
		select {
		case err := <-changed:
			if done = true; err != nil {
				t.Error(err)
			}
		default:
		}
		if !ask(t, asks, q) {
			missed++
		}
	}
	if missed > 0 {
		t.Errorf("%d of %d packets missed their policy", missed, asked)
	}
}

// TestPoliciesAwaitReaders: policies are not written before the packets have left the half of the
// map that they go to. If that cannot be known, those of before stay in force.
func TestPoliciesAwaitReaders(t *testing.T) {
	e := newEngine(t)
	asks := e.askingProgram(t)
	q := policyQuery{src: netip.MustParseAddr("10.0.0.1"), dst: netip.MustParseAddr("10.0.0.2"),
		proto: packet.ProtoTCP}
	one, other := policy("10.0.0.1/32", "10.0.0.2/32"), policy("10.0.0.1/32", "10.0.0.3/32")
	closed, err := e.objects.Images.Clone()
	if err := errors.Join(err, e.Load(compile(t, openRules))); err != nil {
		t.Fatal(err)
	}
	closed.Close()
	images := e.objects.Images
	for _, c := range []struct {
		what     string
		images   *ebpf.Map
		policies []Policy
		fails    bool
		want     bool
	}{
		{"some", images, []Policy{one}, false, true},
		{"others that cannot be written", closed, []Policy{other}, true, true},
		{"the first ones again", images, []Policy{one}, false, true},
		{"others", images, []Policy{other}, false, false},
	} {
		e.objects.Images = c.images
		err := e.SetStack(false, c.policies)
		e.objects.Images = images
		if (err != nil) != c.fails {
			t.Errorf("%s: %v", c.what, err)
		}
		if got := ask(t, asks, q); got != c.want {
			t.Errorf("%s: the packet is protected: %v", c.what, got)
		}
	}
}
