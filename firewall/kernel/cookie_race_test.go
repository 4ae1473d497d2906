package kernel

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
)

const cookieRules = "add check-state\nadd allow tcp from any to me 8080 setup keep-state\n"

// run has a hook of the server evaluate a frame, which then does not reach the stack. It returns
// what the hook said.
func (k *cookieClient) run(hook *ebpf.Program, frame []byte) int32 {
	k.t.Helper()
	clear(frame[:6]) // the address of the loopback, whose packet it is here
	var ret uint32
	if err := k.g.server.Do(func() (err error) {
		ret, err = hook.Run(&ebpf.RunOptions{Data: frame})
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
	return int32(ret)
}

// runChanged is run by weir_in with a second program that was changed.
func (k *cookieClient) runChanged(change func(asm.Instructions) asm.Instructions,
	frame []byte) int32 {
	k.t.Helper()
	const name = "weir_in_slow"
	e := k.g.engine
	spec := committed(k.t)
	e.sizeAsLoaded(spec)
	spec.Programs[name].Instructions = change(spec.Programs[name].Instructions)
	var changed *ebpf.Program
	if err := e.load(spec, map[string]**ebpf.Program{name: &changed}); err != nil {
		k.t.Fatalf("%+v", err)
	}
	defer changed.Close()
	if err := e.objects.SlowPaths.Put(uint32(slowIn), changed); err != nil {
		k.t.Fatal(err)
	}
	ret := k.run(e.objects.WeirIn, frame)
	if err := e.objects.SlowPaths.Put(uint32(slowIn), e.objects.WeirInSlow); err != nil {
		k.t.Fatal(err)
	}
	return ret
}

// startOf returns the index of the first instruction of a function.
func (k *cookieClient) startOf(code asm.Instructions, function string) int {
	k.t.Helper()
	for i := range code {
		if f := btf.FuncMetadata(&code[i]); f != nil && f.Name == function {
			return i
		}
	}
	k.t.Fatalf("the program has no function %s", function)
	return 0
}

// withoutEnd has what follows the evaluation of a redeemed cookie return at once, as if the CPU had
// lost its time slice there.
func (k *cookieClient) withoutEnd(code asm.Instructions) asm.Instructions {
	at := k.startOf(code, "finish_redeemed")
	zero := asm.Mov.Imm(asm.R0, 0)
	zero.Metadata = code[at].Metadata // the name of the function
	code[at].Metadata = asm.Metadata{}
	// the packet is never NULL, but what follows has to be within reach
	code[at] = code[at].WithSymbol("rest")
	return slices.Insert(code, at, zero, asm.JEq.Imm(asm.R1, 0, "rest"), asm.Return())
}

// makeState has the acknowledgement with the cookie make its state, and no more.
func (k *cookieClient) makeState() {
	k.t.Helper()
	if got := k.runChanged(k.withoutEnd,
		k.frame(packet.FlagACK, k.seq+1, k.cookie+1)); got != wentUp {
		k.t.Fatalf("the acknowledgement: %d", got)
	}
}

// TestSecondSegmentBehindACookie: the CPU that redeems a cookie loses its time slice when it has
// made the state. The client's next segment, on another CPU, passes: the state has both sides.
func TestSecondSegmentBehindACookie(t *testing.T) {
	t.Parallel()
	k := newCookieClient(t, cookieRules)
	k.makeState()
	const later = 1000 // behind the numbers for which the cookie is valid
	next := k.frame(packet.FlagACK, k.seq+1+later, k.cookie+1)
	if got := k.run(k.g.engine.objects.WeirIn, next); got != wentUp {
		n, _ := k.g.decided(t, firewall.ReasonTCPAck)
		t.Errorf("the second segment: %d, dropped for tcp-ack: %d", got, n)
	}
}

// sawListener has redeem_cookie act as if it had looked for the listener before the connection was
// open.
func (k *cookieClient) sawListener(code asm.Instructions) asm.Instructions {
	k.t.Helper()
	const listens, established = 10, 1 // TCP_LISTEN, TCP_ESTABLISHED
	found := 0
	for i := k.startOf(code, "redeem_cookie"); code[i].OpCode.JumpOp() != asm.Exit; i++ {
		op := code[i].OpCode.JumpOp()
		if (op == asm.JNE || op == asm.JEq) && code[i].Constant == listens {
			code[i].Constant = established
			found++
		}
	}
	if found != 1 {
		k.t.Fatalf("redeem_cookie compares %d times with TCP_LISTEN", found)
	}
	return code
}

// open reports whether the server has the connection.
func (k *cookieClient) open() (is bool) {
	k.t.Helper()
	if err := k.g.server.Do(func() error {
		b, err := os.ReadFile("/proc/thread-self/net/tcp6")
		is = strings.Contains(string(b), ":1388 01") // port 5000, TCP_ESTABLISHED
		return err
	}); err != nil {
		k.t.Fatal(err)
	}
	return is
}

// TestConnectionOpenedByAnotherSegment: while a CPU evaluates an acknowledgement with a cookie,
// another segment that carries it opens the connection. The acknowledgement passes, and the state
// that it has made stays.
func TestConnectionOpenedByAnotherSegment(t *testing.T) {
	t.Parallel()
	k := newCookieClient(t, cookieRules)
	k.redeem(0)
	nstest.Eventually(t, "the connection is open", k.open)
	if err := k.g.engine.endWhere(func(*entry) bool { return true }); err != nil {
		t.Fatal(err)
	}
	late := k.frame(packet.FlagACK, k.seq+1, k.cookie+1)
	if got := k.runChanged(k.sawListener, late); got != wentUp {
		n, _ := k.g.decided(t, firewall.ReasonCookieRefused)
		t.Errorf("the acknowledgement: %d, refused for the stack: %d", got, n)
	}
	if n := len(k.g.states(t)); n != 1 {
		t.Errorf("%d states", n)
	}
}

// TestDataThatCarriesTheCookie: the client's first data has the numbers of the acknowledgement
// before it. While another CPU has not given that to the stack, the data opens the connection, and
// the server's acknowledgement of the data passes.
func TestDataThatCarriesTheCookie(t *testing.T) {
	t.Parallel()
	k := newCookieClient(t, cookieRules)
	k.makeState()
	const text = "data"
	end := k.seq + 1 + uint32(len(text))
	data := k.frame(packet.FlagACK, k.seq+1, k.cookie+1, []byte(text)...)
	if err := k.wire.Send(data); err != nil {
		t.Fatal(err)
	}
	nstest.Eventually(t, "the connection is open", k.open)
	if got := k.run(k.g.engine.objects.WeirOut, k.answer(k.cookie+1, end)); got != wentUp {
		n, _ := k.g.decided(t, firewall.ReasonTCPAck)
		t.Errorf("the acknowledgement of the data: %d, dropped for tcp-ack: %d", got, n)
	}
	// The slow path looks at no later segment.
	next := k.frame(packet.FlagACK, end, k.cookie+1)
	if got := k.run(k.g.engine.objects.WeirIn, next); got != wentUp {
		t.Errorf("the next segment: %d", got)
	}
	for x, err := range k.g.engine.entries() {
		if err != nil {
			t.Fatal(err)
		}
		if flags := x.sides[0].Flags | x.sides[1].Flags; flags&metaRedeemed != 0 {
			t.Errorf("the flags %x say that nothing was sent behind the cookie", flags)
		}
	}
}
