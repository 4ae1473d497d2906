package kernel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	kernelfeatures "github.com/cilium/ebpf/features"

	"github.com/weirnet/weir/firewall/enginetest"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// newNATRuleFrames sends single frames through a host whose rules translate.
func newNATRuleFrames(t *testing.T, rules string) *frames {
	f := newFrames(t, openRules)
	f.must(f.engine.SetMasquerade(forward.Masquerade{
		Ports: []forward.PortRange{{First: 2000, Last: 3000}}}))
	f.must(f.engine.Load(compile(t, rules)))
	return f
}

// TestNATFragmentBeforeFirst: while rules have nat, what the stack routes does not leave before the
// first fragment. That one may be translated, and rules that let any fragment pass do not know it.
func TestNATFragmentBeforeFirst(t *testing.T) {
	t.Parallel()
	f := newNATRuleFrames(t, "nat 1 config if eth0\nadd 10 nat 1 ip from 10.0.0.0/8 to any via "+
		"eth0\nadd 20 allow ip from any to any frag\nadd 30 allow ip from any to any\n")
	b := enginetest.Packet(t, build.IPv4{Src: serverFour, Dst: outsideAddr, TTL: 64, ID: 77,
		FragOff: 32, Proto: packet.ProtoUDP}, build.Data(make([]byte, 24)))
	code, out := f.run(f.engine.objects.WeirOut, f.podLinks[podA].index, f.nic.index,
		slices.Concat(f.nic.mac[:], []byte{2, 0, 0, 0, 0, 9, 8, 0}, b))
	if code != wasShot {
		t.Errorf("%d, leaves from %s", code, netip.AddrFrom4([4]byte(out[26:30])))
	}
}

// TestNATFragmentWithoutTranslation: where packets continue behind a rule with nat, a later
// fragment does as its first. If how that was translated is not known any more, it is dropped.
func TestNATFragmentWithoutTranslation(t *testing.T) {
	t.Parallel()
	f := newNATRuleFrames(t, "disable one_pass\n"+
		"nat 1 config if eth0 redirect_port udp 10.0.5.9:80 8080\n"+
		"add 10 nat 1 ip from any to any in via eth0\nadd 20 allow ip from any to any\n")
	first := piece{at: f.nic, src: outsideAddr, dst: hostAddr, id: 77,
		layer: build.UDP{SrcPort: 4000, DstPort: 8080, Len: 56}}
	if code, _, dst := f.put(first); code != wentUp || dst != serverFour {
		t.Fatalf("the first: %d to %s", code, dst)
	}
	later := piece{at: f.nic, src: outsideAddr, dst: hostAddr, id: 77, proto: packet.ProtoUDP}
	if code, _, dst := f.put(later); code != wentUp || dst != serverFour {
		t.Errorf("another one: %d to %s", code, dst)
	}
	f.must(prune(f.engine.objects.NatFrags, func(weirNatFragKey) bool { return false }))
	if code, _, dst := f.put(later); code != wasShot {
		t.Errorf("without a translation: %d to %s", code, dst)
	}
}

// TestNATStateOnTheWire: a state of the addresses on the wire is of a packet that rules behind nat
// refused then. It does not keep the translation back that the rules of now ask for.
func TestNATStateOnTheWire(t *testing.T) {
	t.Parallel()
	const before, behind = "disable one_pass\n" +
		"nat 1 config if eth0 redirect_port udp 10.0.5.9:80 8080\n" +
		"add 10 count udp from any to any 8080 in keep-state\n" +
		"add 20 nat 1 ip from any to any in via eth0\n", "add 40 allow ip from any to any\n"
	f := newNATRuleFrames(t, before+"add 30 deny udp from any to 10.0.5.9\n"+behind)
	from, to := netip.AddrPortFrom(outsideAddr, 4000), netip.AddrPortFrom(hostAddr, 8080)
	if code, _, dst := f.send(from, to, build.UDP{}); code != wasShot {
		t.Fatalf("refused: %d to %s", code, dst)
	}
	f.must(f.engine.Load(compile(t, before+behind)))
	for range 2 {
		code, _, dst := f.send(from, to, build.UDP{})
		if code != wentUp || dst != netip.AddrPortFrom(serverFour, 80) {
			t.Errorf("%d to %s", code, dst)
		}
	}
}

// skipInterruptedRuns skips a test on a kernel where packets and the sweep may interrupt the run of
// a program in a test, as they never do at a hook.
func skipInterruptedRuns(t *testing.T) {
	t.Helper()
	if v, err := kernelfeatures.LinuxVersionCode(); err != nil || v < 6<<16|11<<8 {
		t.Skipf("version %x, %v: runs of programs do not keep softirqs off", v, err)
	}
}

// TestNATLoadsDuringWalks: a packet whose walk continues behind nat does so in the rules where it
// began, although others are in force by now.
func TestNATLoadsDuringWalks(t *testing.T) {
	skipInterruptedRuns(t) // the sweep sets which rules a walk is in
	const config = "disable one_pass\nnat 1 config if eth0 redirect_port udp 10.0.5.9:80 8080\n"
	const nat = "nat 1 ip from any to any in via eth0\n"
	const deny = "deny udp from any to 10.0.5.9\n"
	const count, all = "count ip from any to any\n", "allow ip from any to any\n"
	// In the first ones the last rule stands where in the others the one that refuses does.
	early := compile(t, config+"add 10 "+nat+"add 20 "+deny+"add 30 "+count+"add 40 "+count+
		"add 50 "+all)
	late := compile(t, config+"add 11 "+count+"add 12 "+count+"add 13 "+count+"add 14 "+nat+
		"add 20 "+deny+"add 60 "+all)
	f := newNATRuleFrames(t, openRules)
	f.must(f.engine.Load(late))
	b := enginetest.Packet(t, build.IPv4{Src: outsideAddr, Dst: hostAddr, TTL: 64},
		build.UDP{SrcPort: 4000, DstPort: 8080})
	frame := slices.Concat(f.nic.mac[:], []byte{2, 0, 0, 0, 0, 9, 8, 0}, b)
	context := make([]byte, 192) // struct __sk_buff
	binary.NativeEndian.PutUint32(context[40:], f.nic.index)
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		done <- f.host.Do(func() error {
			for {
				select {
				case <-stop:
					return nil
				default:
				}
				if _, err := f.engine.objects.WeirIn.Run(&ebpf.RunOptions{Data: frame,
					Context: context, Repeat: 1000}); err != nil {
					return err
				}
			}
		})
	}()
	for range 50 {
		f.must(f.engine.Load(early))
		f.must(f.engine.Load(late))
	}
	close(stop)
	f.must(<-done)
	if s, err := f.engine.Stats(); err != nil || s.Translations.Now > 0 {
		t.Errorf("a packet passed that all rules refuse: %d translations, %v", s.Translations.Now,
			err)
	}
}
