package kernel

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/packet/build"
)

// replaceBegin opens an engine in the place of the one there is, as if that had another layout, up
// to its first copy. The hooks of the one before, which it returns, are in force still.
func (v *cluster) replaceBegin(rules string) (before *Engine) {
	v.t.Helper()
	before = v.engine
	v.t.Cleanup(func() { before.Close() })
	v.must(v.host.Do(func() error {
		return os.Rename(layoutDir(v.dir), filepath.Join(v.dir, "layout-12"))
	}))
	v.open()
	v.must(v.engine.SetInterfaces(v.ifs))
	v.must(v.engine.Load(compile(v.t, rules)))
	for _, r := range []*podNode{v.a, v.b} {
		v.must(v.host.Do(func() error { return v.engine.SetEndpoint(r.endpoint) }))
	}
	return before
}

// replaceEnd gives it the hooks.
func (v *cluster) replaceEnd() {
	v.t.Helper()
	nic := v.ifs[1].Index
	v.must(v.host.Do(func() error { _, err := v.engine.Attach(nic); return err }))
}

// dialBy dials from a port, which other connections may have, for some time at most.
func dialBy(from netip.AddrPort, v *cluster, to string, most time.Duration) (*net.TCPConn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from), Timeout: most,
		Control: func(_, _ string, c syscall.RawConn) (err error) {
			controlled := c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
			})
			return errors.Join(controlled, err)
		}}
	var c net.Conn
	err := v.outside.Do(func() (err error) {
		c, err = d.DialContext(context.Background(), "tcp", to)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn), nil
}

// TestFlowsThatEndDuringAMigration: a connection that was copied and ends before the hooks change
// leaves nothing in the next table. Its ports can be used again at once; a state that had stayed
// would refuse the answer to the new SYN for five minutes.
func TestFlowsThatEndDuringAMigration(t *testing.T) {
	t.Parallel()
	v := newCluster(t, natRules)
	v.serve(v.a.Node, 80)
	v.publish(8080, 80)
	to := []string{"192.0.2.1:8080", "10.88.0.2:80"}
	from := []netip.AddrPort{end(outsideAddr, 30001), end(outsideAddr, 30002)}
	var open []*net.TCPConn
	for i := range to {
		c, err := dialBy(from[i], v, to[i], testTimeout)
		v.must(err)
		v.must(echoWord(c, "before"))
		open = append(open, c)
	}
	before := v.replaceBegin(natRules)
	count := func(e *Engine) (n int) {
		for _, err := range e.entries() {
			v.must(err)
			n++
		}
		return n
	}
	if n := count(v.engine); n != 4 {
		t.Fatalf("%d entries were copied, not 4", n)
	}
	for _, c := range open {
		v.must(c.SetLinger(0)) // a reset
		v.must(c.Close())
	}
	nstest.Eventually(t, "the old table is empty", func() bool { return count(before) == 0 })
	v.publish(8080, 80)
	v.replaceEnd()
	if n := count(v.engine); n != 0 {
		t.Errorf("%d entries are left of connections that have ended", n)
	}
	for i := range to {
		c, err := dialBy(from[i], v, to[i], testTimeout)
		if err != nil {
			t.Errorf("again from %s: %v", from[i], err)
			continue
		}
		v.must(echoWord(c, "after"))
	}
}

// TestLongTranslationsFollowDuringAMigration: what becomes of a published connection between two
// copies, its translation learns with the second.
func TestLongTranslationsFollowDuringAMigration(t *testing.T) {
	f := newFrames(t, natRules)
	// A machine may be so busy that a migration outlasts what an opening connection has by default.
	const opening = 10 * time.Minute
	wait := func(e *Engine) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.config.LifeSyn, e.config.LifeEstablished = int64(opening), int64(2*time.Hour)
		f.must(e.putConfigLocked())
	}
	wait(f.engine)
	f.publish(8080, 80)
	from, to, pod := end(outsideAddr, 30001), end(hostAddr, 8080), end(podA, 80)
	syn := build.TCP{Seq: 100, Flags: packet.FlagSYN, Window: 64000}
	if code, _, dst := f.send(from, to, syn); code != redirected || dst != pod {
		t.Fatalf("the SYN: %d to %s", code, dst)
	}
	before := f.replaceBegin(natRules)
	next := f.engine
	wait(next)
	f.engine = before
	answer := build.TCP{Seq: 900, Ack: 101, Flags: packet.FlagSYN | packet.FlagACK, Window: 64000}
	if code, src, _ := f.send(pod, from, answer); code != redirected || src != to {
		t.Fatalf("the answer: %d from %s", code, src)
	}
	ack := build.TCP{Seq: 101, Ack: 901, Flags: packet.FlagACK, Window: 64000}
	if code, _, dst := f.send(from, to, ack); code != redirected || dst != pod {
		t.Fatalf("the acknowledgement: %d to %s", code, dst)
	}
	f.engine = next
	f.publish(8080, 80)
	f.replaceEnd()
	all := f.pairs()
	for name, x := range all {
		if x.phase() != flow.PhaseEstablished {
			t.Errorf("the translation %s is %s", name, x.phase())
		}
	}
	if len(all) != 1 {
		t.Errorf("%d translations", len(all))
	}
	f.age(t, opening+time.Minute)
	data := build.TCP{Seq: 901, Ack: 101, Flags: packet.FlagACK, Window: 64000}
	if code, src, _ := f.send(pod, from, data); code != redirected || src != to {
		t.Errorf("what the pod sends: %d from %s", code, src)
	}
}

// TestConnectionAtTheSwitch: of a connection that talks while the hooks change, each engine sees a
// part. It continues, and is strict again after a round trip.
func TestConnectionAtTheSwitch(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	for i, to := range []netip.AddrPort{end(podA, 80), end(hostAddr, 8080)} {
		f.connectionAtTheSwitch(t, end(outsideAddr, 30001+i), to)
	}
}

func (f *frames) connectionAtTheSwitch(t *testing.T, from, to netip.AddrPort) {
	pod, seq, ack := end(podA, 80), uint32(100), uint32(900) // what comes next from each
	passes := func(what string, client bool, flags uint8, n int) {
		t.Helper()
		s := build.TCP{Seq: seq, Ack: ack, Flags: flags, Window: 64000}
		a, b := from, to
		if !client {
			s.Seq, s.Ack, a, b = ack, seq, pod, from
		}
		code, _, _ := f.sendData(a, b, s, n)
		if code == wasShot {
			t.Errorf("%s to %s: %d", what, to, code)
		}
		if flags&packet.FlagSYN != 0 {
			n++
		}
		if client {
			seq += uint32(n)
		} else {
			ack += uint32(n)
		}
	}
	const data = packet.FlagACK | packet.FlagPSH
	passes("the SYN", true, packet.FlagSYN, 0)
	passes("the answer", false, packet.FlagSYN|packet.FlagACK, 0)
	passes("its acknowledgement", true, packet.FlagACK, 0)
	before := f.replaceBegin(natRules)
	next := f.engine
	f.publish(8080, 80)
	locked := func(g func() error) {
		next.mu.Lock()
		defer next.mu.Unlock()
		f.must(g())
	}
	locked(next.followLocked)
	f.engine = before
	passes("data", true, data, 8)
	f.engine = next
	passes("the answer", false, data, 8)
	passes("its acknowledgement", true, packet.FlagACK, 0)
	locked(func() error { return next.catchUpLocked(true) })
	passes("more data", true, data, 8)
	passes("more answers", false, data, 8)
	passes("still more data", true, data, 8)
	passes("still more answers", false, data, 8)
	known := uint32(flow.SideAcked)
	for x, err := range next.entries() {
		f.must(err)
		if both := x.sides[0].Flags & x.sides[1].Flags; !x.translation() &&
			x.tuple().proto == packet.ProtoTCP && (both&known == 0 || both&metaLiberal != 0) {
			t.Errorf("%s is not strict: flags %#x", x.ends(), both)
		}
	}
	f.replaceEnd()
}

// TestConnectionsThatEndAtTheSwitch: a connection that ends after the last copy before the hooks
// change, also one that began after it, is closed for the next engine, too. Its ports can be used
// again at once. So is one that has missed packets and ends with its next ones.
func TestConnectionsThatEndAtTheSwitch(t *testing.T) {
	t.Parallel()
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	pod, to := end(podA, 80), end(hostAddr, 8080)
	old, young, busy := end(outsideAddr, 30001), end(outsideAddr, 30002), end(outsideAddr, 30003)
	closes := func(from netip.AddrPort, sent uint32) {
		for i, s := range []build.TCP{
			{Seq: sent, Ack: 1000, Flags: packet.FlagFIN | packet.FlagACK, Window: 1000},
			{Seq: 1000, Ack: sent + 1, Flags: packet.FlagFIN | packet.FlagACK, Window: 1000},
			{Seq: sent + 1, Ack: 1001, Flags: packet.FlagACK, Window: 1000},
		} {
			a, b := from, to
			if i == 1 {
				a, b = pod, from
			}
			if code, _, _ := f.send(a, b, s); code == wasShot {
				t.Errorf("%s > %s, %+v: %d", a, b, s, code)
			}
		}
	}
	f.shake(old, to)
	f.shake(busy, to)
	before := f.replaceBegin(natRules)
	next := f.engine
	f.publish(8080, 80)
	next.mu.Lock()
	f.must(next.followLocked())
	f.engine = before
	f.shake(young, to)
	closes(old, 100)
	closes(young, 100)
	f.sendData(busy, to, build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000}, 8)
	f.engine = next
	f.must(next.catchUpLocked(true))
	next.mu.Unlock()
	closes(busy, 108)
	for _, from := range []netip.AddrPort{old, young, busy} {
		s, _ := f.stateOf(from, pod).state()
		if phase := s.Phase(); phase != flow.PhaseClosed {
			t.Errorf("the connection from %s is %s", from, phase)
		}
		f.goes("a SYN again", from, to,
			build.TCP{Seq: 99000, Flags: packet.FlagSYN, Window: 1000}, from, pod)
	}
	f.replaceEnd()
}

// TestConnectionsThatAreGoneAtTheSwitch: a connection ended after the last copy before the hooks
// change, and is gone from the other table before the last copy. It is not kept here: its port can
// be used again. What this engine has seen packets of stays.
func TestConnectionsThatAreGoneAtTheSwitch(t *testing.T) {
	f := newFrames(t, natRules)
	f.publish(8080, 80)
	to := end(hostAddr, 8080)
	over, talks, kept := end(outsideAddr, 30001), end(outsideAddr, 30002), end(outsideAddr, 30003)
	all := []netip.AddrPort{over, talks, kept}
	for _, from := range all {
		f.shake(from, to)
	}
	before := f.replaceBegin(natRules)
	next := f.engine
	f.publish(8080, 80)
	next.mu.Lock()
	f.must(next.followLocked())
	s := build.TCP{Seq: 100, Ack: 1000, Flags: packet.FlagACK, Window: 1000}
	if code, _, _ := f.sendData(talks, to, s, 8); code == wasShot {
		t.Errorf("data: %d", code)
	}
	f.must(before.endWhere(func(x *entry) bool {
		a, b := x.original()
		return slices.ContainsFunc([]netip.AddrPort{a, b}, func(e netip.AddrPort) bool {
			return e == over || e == talks
		})
	}))
	f.must(next.catchUpLocked(true))
	next.mu.Unlock()
	left := map[netip.AddrPort]int{}
	for x, err := range next.entries() {
		f.must(err)
		a, b := x.original()
		left[a]++
		left[b]++
	}
	for _, from := range all {
		want := 3 // the state and the two entries of the translation
		if from == over {
			want = 0
		}
		if left[from] != want {
			t.Errorf("%d entries of %s, not %d: %v", left[from], from, want, left)
		}
	}
	if got := len(f.pairs()); got != 2 {
		t.Errorf("%d translations", got)
	}
	f.goes("a SYN again", over, to, build.TCP{Seq: 99000, Flags: packet.FlagSYN, Window: 1000},
		over, end(podA, 80))
	s = build.TCP{Seq: 5000, Ack: 99001, Flags: packet.FlagSYN | packet.FlagACK, Window: 1000}
	if code, _, _ := f.send(end(podA, 80), over, s); code == wasShot {
		t.Errorf("its answer: %d", code)
	}
	f.replaceEnd()
}

// TestMarkOfPrevious: while the hooks change, a packet that one engine has evaluated and sent
// leaves by a hook of the other, which knows it.
func TestMarkOfPrevious(t *testing.T) {
	t.Parallel()
	v := newCluster(t, natRules)
	before := v.replaceBegin(natRules)
	if a, b := before.localMark(), v.engine.localMark(); a != b || a == 0 {
		t.Errorf("marks %#x and %#x", a, b)
	}
}
