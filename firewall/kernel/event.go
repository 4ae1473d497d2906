package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/flow"
	"github.com/weirnet/weir/packet"
)

// eventKinds are the bits of all kinds that Watch may report.
const eventKinds = 1<<firewall.EventStart | 1<<firewall.EventEnd | 1<<firewall.EventDrop |
	1<<firewall.EventLog | 1<<firewall.EventRefuse

// Watch calls f with events until ctx ends, of the kinds that Subscribe names, one after the other.
// When f is too slow, events are lost and counted (Stats.Lost). There may be one Watch at a time.
//
// As long as Watch runs, idle TCP connections whose state would expire soon are probed at both
// ends; an answer keeps the state. f may be nil, for the probes alone. Watch must be called on a
// thread in the namespace of the interfaces.
func (e *Engine) Watch(ctx context.Context, f func(firewall.Event)) error {
	r, err := ringbuf.NewReader(e.objects.Events)
	if err != nil {
		return fmt.Errorf("open the ring of events: %w", err)
	}
	defer r.Close()
	p, err := newProber(e.localMark())
	if err != nil {
		return err
	}
	defer p.close()
	if err := e.watching(true); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { r.Close() })()
	var record ringbuf.Record
	for {
		err := r.ReadInto(&record)
		if errors.Is(err, os.ErrClosed) {
			return errors.Join(ctx.Err(), e.watching(false))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("read the ring of events: %w", err), e.watching(false))
		}
		if len(record.RawSample) < int(unsafe.Sizeof(weirEvent{})) {
			continue
		}
		w := (*weirEvent)(unsafe.Pointer(&record.RawSample[0]))
		switch {
		case w.Kind == eventProbe:
			p.probe(w)
		case w.Kind == eventPacket:
			e.captured(record.RawSample)
		case f != nil:
			f(e.event(w))
		}
	}
}

// Subscribe sets which kinds of events Watch reports from now on; at first those that the engine
// reported whose table was taken over, or none. Before the first Watch they wait in the ring.
// Events of other kinds, and all after a Watch until the next, cost nothing.
func (e *Engine) Subscribe(kinds ...firewall.EventKind) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kinds = 0
	for _, k := range kinds {
		e.kinds |= 1 << k
	}
	return e.listenLocked()
}

// Capture hands the frames that come to the hooks to f, through Watch, until it is called with nil.
// f must not keep the frame. What does not fit the ring is counted as lost.
func (e *Engine) Capture(f func(*firewall.Captured)) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.capture = f
	return e.listenLocked()
}

// watching sets whether there is a Watch.
func (e *Engine) watching(on bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.watched, e.watchEnded = on, !on
	return e.listenLocked()
}

// listenLocked writes which events have a subscriber. The sweep leaves a set alone until its states
// expire, or until they want probes if anybody listens for those. So what it has noted under the
// epoch before is for the other case.
func (e *Engine) listenLocked() error {
	if e.objects.Config == nil {
		return nil
	}
	before := e.config.Listen
	e.config.Listen = e.kinds | bit(e.capture != nil)<<eventPacket
	switch {
	case e.watched:
		e.config.Listen |= 1 << eventProbe
	case e.watchEnded:
		e.config.Listen = 0
	}
	if (before^e.config.Listen)&(1<<eventProbe) != 0 {
		e.config.Epoch++
	}
	return e.putConfigLocked()
}

// captured hands a frame on.
func (e *Engine) captured(sample []byte) {
	e.mu.Lock()
	f := e.capture
	e.mu.Unlock()
	if f == nil || len(sample) < int(unsafe.Sizeof(weirCaptured{})) {
		return
	}
	w := (*weirCaptured)(unsafe.Pointer(&sample[0]))
	w.Event.Version = 0 // it holds no addresses
	data, ethernet := w.Data[:min(int(w.Size), len(w.Data))], w.L2 != 0
	if w.L2 == l2Infiniband {
		data, ethernet = data[min(l2Infiniband, len(data)):], false
	}
	ev := e.event(&w.Event)
	f(&firewall.Captured{Time: ev.Time, Hook: ev.Hook, Verdict: ev.Verdict, Length: ev.Length,
		Ethernet: ethernet, Data: data})
}

func (e *Engine) localMark() uint32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.config.LocalMark
}

// event turns an event of the kernel into a firewall.Event.
func (e *Engine) event(w *weirEvent) firewall.Event {
	ev := firewall.Event{
		Kind: firewall.EventKind(w.Kind), Time: time.Duration(w.Time), Proto: packet.Proto(w.Proto),
		TCPFlags: w.TcpFlags, Length: w.Length, Duration: time.Duration(w.Duration),
		Hook:    firewall.Hook{Dir: firewall.Direction(w.Dir), Recv: w.Recv, Xmit: w.Xmit},
		Packets: w.Packets, Bytes: w.Bytes,
		Verdict: firewall.Verdict{
			Pass: w.Pass != 0, Reason: firewall.Reason(w.Reason), Rule: w.Number, Slot: w.Slot,
			Answer: firewall.Answer(w.Answer),
			Code:   w.Code, State: firewall.StateUse(w.State),
		},
	}
	if ev.Kind == firewall.EventEnd { // of a state, which a rule that allows has made
		ev.Verdict.Pass, ev.Verdict.State = true, firewall.StateHit
		ev.Verdict.Rule, ev.Verdict.Slot = e.numberOf(w.Rule)
	} else if w.Version == 0 { // refused before the addresses were known
		return ev
	}
	// the words are those of the key, turned so that the originator comes first
	if ev.Kind == firewall.EventEnd {
		k := flow.Key{LowHi: w.SrcHi, LowLo: w.SrcLo, HighHi: w.DstHi, HighLo: w.DstLo,
			Ports: w.Ports, Proto: packet.Proto(w.Proto)}
		ev.Src, ev.Dst = k.DisplayEnds(flow.EndLow)
		return ev
	}
	ev.Src = netip.AddrPortFrom(addrOf(w.SrcHi, w.SrcLo), uint16(w.Ports>>16))
	ev.Dst = netip.AddrPortFrom(addrOf(w.DstHi, w.DstLo), uint16(w.Ports))
	return ev
}

// numberOf returns the number and the slot of a rule by its id, zeros if it is not in force any
// more.
func (e *Engine) numberOf(id uint32) (number, slot uint16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.rules) == 0 {
		return 0, 0
	}
	if e.slotsOf != &e.rules[0] { // other rules since the last event
		e.slotByID = make(map[uint32]int, len(e.rules))
		for i := range e.rules {
			e.slotByID[e.rules[i].Id] = i
		}
		e.slotsOf = &e.rules[0]
	}
	i, ok := e.slotByID[id]
	if !ok {
		return 0, 0
	}
	return e.rules[i].Number, uint16(i)
}
