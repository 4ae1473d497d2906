package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// meanwhile has a program lose the processor at one point, the nth look-up in a map by a function,
// and another CPU set the tag of an entry there. A function that is called instead stands for that.
func meanwhile(t *testing.T, p *ebpf.ProgramSpec, function, in string, nth int, place uint32,
	tag uint64) {
	t.Helper()
	meanwhileStore(t, p, function, in, nth,
		store{"tags", place / ways, int16(place%ways) * 8, asm.DWord, tag})
}

// store is a store of a value into an entry of a map.
type store struct {
	table  string
	key    uint32
	offset int16
	size   asm.Size
	value  uint64
}

// meanwhileStore is meanwhile with another store than that of a tag.
func meanwhileStore(t *testing.T, p *ebpf.ProgramSpec, function, in string, nth int, s store) {
	t.Helper()
	stored := fmt.Sprint("stored_", len(p.Instructions))
	meanwhileDo(t, p, function, in, nth,
		asm.StoreImm(asm.R10, -4, int64(s.key), asm.Word),
		asm.LoadMapPtr(asm.R1, 0).WithReference(s.table),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, stored),
		asm.LoadImm(asm.R1, int64(s.value), asm.DWord),
		asm.StoreMem(asm.R0, s.offset, asm.R1, s.size),
		asm.Mov.Imm(asm.R1, 0).WithSymbol(stored))
}

// meanwhileDo has a program do something before the nth look-up in a map by a function.
func meanwhileDo(t *testing.T, p *ebpf.ProgramSpec, function, in string, nth int,
	what ...asm.Instruction) {
	t.Helper()
	name := fmt.Sprint("meanwhile_", len(p.Instructions)) // there may be more than one
	var now, last string
	seen, done := 0, false
	for i := range p.Instructions {
		ins := &p.Instructions[i]
		if f := btf.FuncMetadata(ins); f != nil {
			now = f.Name
		}
		if now == function && ins.IsLoadFromMap() {
			if last = ins.Reference(); last == in {
				seen++
			}
		}
		if now == function && last == in && (seen == nth || nth == every) && ins.IsBuiltinCall() &&
			ins.Constant == int64(asm.FnMapLookupElem) {
			call := asm.Call.Label(name)
			call.Metadata = ins.Metadata
			*ins = call.WithReference(name)
			done, last = true, ""
		}
	}
	if !done {
		t.Fatalf("%s looks up %d times in %s, not %d", function, seen, in, nth)
	}
	number := &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed}
	first := btf.WithFuncMetadata(asm.Mov.Reg(asm.R6, asm.R1), &btf.Func{
		Name: name, Linkage: btf.StaticFunc,
		Type: &btf.FuncProto{Return: number,
			Params: []btf.FuncParam{{Name: "map", Type: number}, {Name: "key", Type: number}}},
	}).WithSymbol(name).WithSource(p.Instructions[0].Source()) // the kernel wants a source line
	p.Instructions = append(p.Instructions, first, asm.Mov.Reg(asm.R7, asm.R2))
	p.Instructions = append(p.Instructions, what...)
	p.Instructions = append(p.Instructions,
		asm.Mov.Reg(asm.R1, asm.R6),
		asm.Mov.Reg(asm.R2, asm.R7),
		asm.FnMapLookupElem.Call(),
		asm.Return(),
	)
}

// every look-up in a map.
const every = -1

// interleaving is a packet of a flow, and the look-up of its evaluation after which another flow
// takes the entry. It is the nth look-up in a map by a function of a program.
type interleaving struct {
	program      string
	function, in string
	nth          int
	begin        [][]byte // frames that begin the flow
	next         []byte
}

// TestSuccessorOfAnEntry: a packet has found an entry, and writes to it when another flow has taken
// it. It changes nothing of that flow: the tag is checked again before the first store. Without
// that a segment of the one moves the window of the other for good.
func TestSuccessorOfAnEntry(t *testing.T) {
	t.Parallel()
	const text = "some text of the minimal length" // of a packet that is as long as a TCP header
	const n = uint32(len(text))
	ends := [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	mustBuild := func(back bool, options []byte, l build.Layer) []byte {
		ip := build.IPv4{Src: ends[0], Dst: ends[1], Options: options}
		if back {
			ip.Src, ip.Dst = ends[1], ends[0]
		}
		b := enginetest.Packet(t, ip, l, build.Data(text))
		return append(frameFor(b), b...)
	}
	none := []byte{1, 1, 1, 1} // no operation
	udp := func(back bool, options []byte) []byte {
		return mustBuild(back, options, build.UDP{SrcPort: 7, DstPort: 7})
	}
	tcp := func(back bool, options []byte, flags uint8, seq, ack uint32) []byte {
		return mustBuild(back, options, build.TCP{SrcPort: 7, DstPort: 7, Flags: flags, Seq: seq,
			Ack: ack, Window: 1000})
	}
	const syn, ack = packet.FlagSYN, packet.FlagACK
	udps := [][]byte{udp(false, nil), udp(true, nil), udp(false, nil)}
	tcps := [][]byte{tcp(false, nil, syn, 99, 0), tcp(true, nil, syn|ack, 999, 100+n),
		tcp(false, nil, ack, 100+n, 1000+n)}
	for name, c := range map[string]interleaving{
		"UDP, fast path": {"weir_in", "weir_in", "rule_cache", every, udps, udp(false, nil)},
		"UDP, slow path": {"weir_in_slow", "look_up", "tags", 3, udps, udp(false, none)},
		"TCP, fast path": {"weir_in", "weir_in", "rule_cache", every, tcps,
			tcp(false, nil, ack, 100+2*n, 1000+n)},
		"TCP, slow path": {"weir_in_slow", "look_up", "tags", 3, tcps,
			tcp(false, none, ack, 100+2*n, 1000+n)},
	} {
		t.Run(name, c.test)
	}
}

func (c interleaving) test(t *testing.T) {
	e := newEngine(t)
	if err := e.Load(compile(t, "add check-state\nadd allow udp from any to any keep-state\n"+
		"add allow tcp from any to any setup keep-state\n")); err != nil {
		t.Fatal(err)
	}
	run := func(p *ebpf.Program, frame []byte) int32 {
		ret, err := p.Run(&ebpf.RunOptions{Data: frame})
		if err != nil {
			t.Fatal(err)
		}
		return int32(ret)
	}
	for i, frame := range c.begin {
		if code := run(e.objects.WeirIn, frame); code != wentUp {
			t.Fatalf("packet %d: %d", i, code)
		}
	}
	var own *entry
	for x, err := range e.entries() {
		if err != nil || own != nil {
			t.Fatalf("not one state: %v", err)
		}
		own = x
	}
	sides := func() (both [2]weirSide) {
		var s weirSet
		if err := e.objects.States.Lookup(own.place/ways, &s); err != nil {
			t.Fatal(err)
		}
		at := own.place % ways * 2
		return [2]weirSide{s.Side[at], s.Side[at+1]}
	}
	first := sides()
	if code := run(e.objects.WeirIn, c.next); code != wentUp || sides() == first {
		t.Fatalf("without a change in between: %d, and the entry is as it was: %v", code,
			sides() == first)
	}
	before := sides()
	spec := committed(t)
	e.sizeAsLoaded(spec)
	meanwhile(t, spec.Programs[c.program], c.function, c.in, c.nth, own.place, own.tag^1<<40)
	var late *ebpf.Program
	if err := e.load(spec, map[string]**ebpf.Program{c.program: &late}); err != nil {
		t.Fatalf("%+v", err)
	}
	defer late.Close()
	if c.program == "weir_in" {
		run(late, c.next)
	} else {
		if err := e.objects.SlowPaths.Put(uint32(slowIn), late); err != nil {
			t.Fatal(err)
		}
		run(e.objects.WeirIn, c.next)
	}
	if after := sides(); after != before {
		t.Errorf("the entry of another flow was\n%+v and is\n%+v", before, after)
	}
	var line weirTagLine
	if err := e.objects.Tags.Lookup(own.place/ways, &line); err != nil {
		t.Fatal(err)
	}
	if line.Tag[own.place%ways] != own.tag^1<<40 {
		t.Errorf("the tag is %x: nothing came in between", line.Tag[own.place%ways])
	}
}

// TestSuccessorIsNotRedirected: a packet shows that netfilter does not translate its flow, and
// notes it when another flow has taken the entry. It changes nothing of that flow, whose packets
// would go round netfilter.
func TestSuccessorIsNotRedirected(t *testing.T) {
	t.Parallel()
	const redirect = 1 << 27 // META_REDIRECT
	e := newEngine(t)
	ends := [2]netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")}
	port := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.9"), 80)
	if err := errors.Join(e.Load(compile(t, "add allow udp from any to any keep-state\n")),
		e.SetPublished([]forward.Published{{Proto: packet.ProtoTCP, Host: port,
			Pod: port}})); err != nil {
		t.Fatal(err)
	}
	b := enginetest.Packet(t, build.IPv4{Src: ends[0], Dst: ends[1]},
		build.UDP{SrcPort: 7, DstPort: 7}, build.Data("some text"))
	frame := append(frameFor(b), b...)
	run := func(p *ebpf.Program) {
		t.Helper()
		if ret, err := p.Run(&ebpf.RunOptions{Data: frame}); err != nil || int32(ret) != wentUp {
			t.Fatal(int32(ret), err)
		}
	}
	run(e.objects.WeirIn)
	var own *entry
	for x, err := range e.entries() {
		if err != nil || own != nil {
			t.Fatalf("not one state: %v", err)
		}
		own = x
	}
	noted := func() (n int) {
		var s weirSet
		if err := e.objects.States.Lookup(own.place/ways, &s); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(2) {
			if s.Side[own.place%ways*2+i].Flags&redirect != 0 {
				n++
			}
		}
		return n
	}
	spec := committed(t)
	e.sizeAsLoaded(spec)
	meanwhile(t, spec.Programs["weir_out_slow"], "note_egress", "states", 2, own.place,
		own.tag^1<<40)
	var late *ebpf.Program
	if err := e.load(spec, map[string]**ebpf.Program{"weir_out_slow": &late}); err != nil {
		t.Fatalf("%+v", err)
	}
	defer late.Close()
	if err := e.objects.SlowPaths.Put(uint32(slowOut), late); err != nil {
		t.Fatal(err)
	}
	run(e.objects.WeirOut)
	if n := noted(); n != 0 {
		t.Errorf("%d sides of another flow's entry say that netfilter does not translate it", n)
	}
	var line weirTagLine
	if err := e.objects.Tags.Lookup(own.place/ways, &line); err != nil {
		t.Fatal(err)
	}
	if line.Tag[own.place%ways] != own.tag^1<<40 {
		t.Fatalf("the tag is %x: nothing came in between", line.Tag[own.place%ways])
	}
	line.Tag[own.place%ways] = own.tag
	if err := e.objects.Tags.Put(own.place/ways, &line); err != nil {
		t.Fatal(err)
	}
	if err := e.putSlowPaths(byName[ebpf.Program](&e.objects.weirPrograms)); err != nil {
		t.Fatal(err)
	}
	run(e.objects.WeirOut)
	if n := noted(); n != 2 {
		t.Errorf("without a change in between %d sides are noted", n)
	}
}
