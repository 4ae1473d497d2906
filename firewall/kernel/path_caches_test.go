package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/testrand"
)

// pathKind is the path on which packets are evaluated.
type pathKind int

const (
	uncached   pathKind = iota // on the slow path, with empty caches
	onSlowPath                 // on the slow path: a capture has all packets take it
	onFastPath                 // on the fast path, where it takes them
)

// outcome is what became of a packet.
type outcome struct {
	code  int32
	left  []byte
	mark  uint32
	count string // what was counted meanwhile
}

// pathEvent is a packet or a change.
type pathEvent struct {
	hop    *pathHop // nil: a change
	what   string
	change func()
	want   outcome
}

// pathRun compares the kinds of path.
type pathRun struct {
	*pathMix
	base    []firewall.Interface
	events  *ringbuf.Reader
	kind    pathKind
	got     outcome           // of the last packet
	numbers map[string]uint64 // counters after the last packet, nil after a change
	// so many changes of pods or translations after the first, their serial number wraps around
	wrapAfter uint32
}

// send has a packet come to its hook.
func (v *pathRun) send(h *pathHop) (o outcome) {
	if v.kind == uncached {
		v.forgetCaches()
	}
	p := v.engine.objects.WeirIn
	if h.out {
		p = v.engine.objects.WeirOut
	}
	context := make([]byte, skbSize)
	binary.NativeEndian.PutUint32(context[36:], h.recv)
	binary.NativeEndian.PutUint32(context[40:], h.index)
	binary.NativeEndian.PutUint32(context[176:], h.segment)
	o.left = make([]byte, len(h.frame)+100)
	after := make([]byte, skbSize)
	before := v.numbers
	if before == nil {
		before = v.counted()
	}
	v.must(v.host.Do(func() error {
		run := &ebpf.RunOptions{Data: h.frame, DataOut: o.left, Context: context, ContextOut: after}
		code, err := p.Run(run)
		if err != nil {
			return fmt.Errorf("%s: %w", h.what, err)
		}
		o.code, o.left = int32(code), run.DataOut
		return nil
	}))
	o.mark = binary.NativeEndian.Uint32(after[8:])
	v.numbers = v.counted()
	var news []string
	for what, n := range v.numbers {
		if n -= before[what]; n > 0 {
			news = append(news, fmt.Sprint(what, ": ", n))
		}
	}
	slices.Sort(news)
	o.count = strings.Join(append(news, v.dropped()...), ", ")
	return o
}

// dropped returns what the events say of dropped packets since it was called last.
func (v *pathRun) dropped() (all []string) {
	v.events.SetDeadline(time.Unix(1, 0)) // those that are there
	for {
		r, err := v.events.Read()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		v.must(err)
		w := (*weirEvent)(unsafe.Pointer(&r.RawSample[0]))
		if w.Kind != eventPacket {
			e := v.engine.event(w)
			e.Time = 0
			all = append(all, fmt.Sprintf("event %+v", e))
		}
	}
}

// counted are the counters of decisions, but for what the kernel sends by itself, and of pods.
func (v *pathRun) counted() map[string]uint64 {
	n := map[string]uint64{}
	all, err := v.engine.Decisions()
	v.must(err)
	for d, c := range all {
		if d.Reason != firewall.ReasonEssential && d.Reason != firewall.ReasonNotIP {
			n[fmt.Sprintf("packets %+v", d)], n[fmt.Sprintf("bytes %+v", d)] = c.Packets, c.Bytes
		}
	}
	pods, err := v.engine.Endpoints()
	v.must(err)
	for _, p := range pods {
		n[fmt.Sprint("dropped to pod ", p.Index)] = p.DropsIn
		n[fmt.Sprint("dropped from pod ", p.Index)] = p.DropsOut
	}
	rules, err := v.engine.Rules()
	v.must(err)
	for _, r := range rules {
		n[fmt.Sprintf("packets of %d", r.Number)] += r.Packets
		n[fmt.Sprintf("bytes of %d", r.Number)] += r.Bytes
	}
	return n
}

// forgetCaches makes all that is cached invalid.
func (v *pathRun) forgetCaches() {
	v.engine.mu.Lock()
	defer v.engine.mu.Unlock()
	v.must(v.engine.putForwardingLocked())
	v.engine.config.Epoch++
	v.must(v.engine.putConfigLocked())
}

// begin sets all back to what it was at first.
func (v *pathRun) begin(kind pathKind) {
	v.kind, v.numbers = kind, nil
	v.reset()
	v.must(v.engine.endWhere(func(*entry) bool { return true }))
	v.must(prune(v.engine.objects.Frags, func(weirFragKey) bool { return false }))
	v.must(prune(v.engine.objects.RefusedFrags, func(weirFragKey) bool { return false }))
	v.must(prune(v.engine.objects.NatFrags, func(weirNatFragKey) bool { return false }))
	v.setConfig(func(c *weirConfig) { // nothing expires meanwhile
		for _, life := range []*int64{&c.LifeSyn, &c.LifeEstablished, &c.LifeFin, &c.LifeRst,
			&c.LifeUdp, &c.LifeUdpReply, &c.LifeShort, &c.LifeFrag} {
			*life = int64(time.Hour)
		}
		c.Listen = 1<<firewall.EventDrop | 1<<firewall.EventRefuse
		if kind != onFastPath {
			c.Listen |= 1 << eventPacket
		}
	})
	v.engine.forwarding.Serial = math.MaxUint32 - v.wrapAfter
	clearEach[weirFwdEntry](v.engine.objects.FwdCache, v.must) // of the same number before
	v.forgetCaches()
	v.dropped()
}

// clearEach clears a map that is an array with a value for each CPU.
func clearEach[V any](m *ebpf.Map, must func(error)) {
	none := make([]V, ebpf.MustPossibleCPU())
	for i := range m.MaxEntries() {
		must(m.Put(i, none))
	}
}

// states are all entries of the table, with what does not depend on the time.
func (v *pathRun) states() map[string]string {
	all := map[string]string{}
	for x, err := range v.engine.entries() {
		v.must(err)
		name := fmt.Sprintf("%x %x", x.tag, x.addr)
		for _, s := range x.sides {
			all[name] += fmt.Sprintf("%x %d %d %d %d %d %d; ", s.Flags&^(1<<27), s.Packets, s.Bytes,
				s.End, s.Ack, s.Edge, s.Win)
		}
	}
	return all
}

// TestCachesChangeNoVerdict: what is cached, and the fast path, change nothing that becomes of a
// packet: the program's answer, the frame and the mark that it leaves, what is counted, the events
// of dropped packets with their rules, and the states. Between the packets rules, tables,
// addresses, pods, translations, services and the mode of SYN cookies change, and the numbers by
// which caches are valid wrap around. Every packet that is dropped is counted with a reason.
func TestCachesChangeNoVerdict(t *testing.T) {
	t.Parallel()
	cachesChangeNoVerdict(t, 6)
}

// TestLongCachesChangeNoVerdict sends more.
func TestLongCachesChangeNoVerdict(t *testing.T) { cachesChangeNoVerdict(t, 60) }

func cachesChangeNoVerdict(t *testing.T, sequences uint64) {
	t.Helper()
	skipInterruptedRuns(t)
	shortenTimers(t)
	stayOnFirstCPU(t)
	f := newFrames(t, mixRules[0])
	// otherwise the kernel forgets it within a minute in which nothing goes there
	for _, outside := range []string{outsideAddr.String(), "2001:db8::2"} {
		f.host.IP("neigh replace " + outside + " dev eth0 nud permanent lladdr " +
			f.outside.Link("eth0").HardwareAddr.String())
	}
	f.virtualAddresses()
	events, err := ringbuf.NewReader(f.engine.objects.Events)
	f.must(err)
	defer events.Close()
	v := &pathRun{pathMix: &pathMix{frames: f}, base: slices.Clone(f.ifs), events: events}
	first := testrand.Seed(t)
	for n := range sequences {
		v.sequence(t, first+n)
	}
}

// sequence sends packets without caches, and again on both paths.
func (v *pathRun) sequence(t *testing.T, seed uint64) {
	t.Helper()
	v.pathMix.begin(seed)
	const events = 600
	changes := pick(v.r, 20, 60) // one event of so many
	v.wrapAfter = uint32(v.r.IntN(10))
	v.begin(uncached)
	var all []*pathEvent
	for range events {
		e := &pathEvent{}
		if v.r.IntN(changes) == 0 {
			e = v.change()
		} else {
			e.hop = v.next()
		}
		all = append(all, e)
		v.play(e)
		if e.hop == nil {
			continue
		}
		if e.want = v.got; !droppedAndCounted(&e.want) {
			t.Errorf("sequence %d, %s: %s", seed, e.hop.what, &e.want)
		}
		v.remember(&e.want)
	}
	states := v.states()
	for _, kind := range []pathKind{onSlowPath, onFastPath} {
		v.begin(kind)
		var changed []string
		for i, e := range all {
			v.play(e)
			if e.hop == nil {
				changed = append(changed, e.what)
				continue
			}
			if o, w := &v.got, &e.want; !o.equal(w) {
				t.Fatalf("sequence %d, packet %d, %s, after %v:\nway %d %s\nuncached %s", seed, i,
					e.hop.what, changed, kind, o, w)
			}
		}
		if differences(t, states, v.states()); t.Failed() {
			t.Fatalf("sequence %d, kind %d", seed, kind)
		}
	}
}

// play sends a packet, or makes a change.
func (v *pathRun) play(e *pathEvent) {
	if e.hop == nil {
		e.change()
		v.numbers = nil
		return
	}
	v.got = v.send(e.hop)
}

// remember keeps a packet that has passed, to be answered.
func (v *pathRun) remember(o *outcome) {
	if o.code == wasShot || len(o.left) <= linkHeader+40 ||
		o.left[12] != 0x08 && o.left[12] != 0x86 {
		return
	}
	if ip := o.left[linkHeader:]; ip[0]>>4 == 4 || ip[0]>>4 == 6 {
		v.seen = append(v.seen, ip)
	}
}

// equal reports whether the same became of a packet. Its link-layer addresses depend on when a
// route was looked up.
func (o *outcome) equal(w *outcome) bool {
	return o.code == w.code && o.mark == w.mark && o.count == w.count &&
		bytes.Equal(o.left[linkHeader:], w.left[linkHeader:])
}

func (o *outcome) String() string {
	return fmt.Sprintf("%d, mark %x, left %.80x, counted %s", o.code, o.mark, o.left, o.count)
}

// droppedAndCounted reports whether a packet was counted as dropped, once, if it was dropped or
// answered, and else not.
func droppedAndCounted(o *outcome) bool {
	drops := strings.Count(o.count, "packets {Dir:in Pass:false") +
		strings.Count(o.count, "packets {Dir:out Pass:false")
	return drops == 0 && o.code != wasShot || drops == 1 && o.code != wentUp
}
