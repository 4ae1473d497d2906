package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/rule"
)

const (
	// captureQueue is how many frames wait for a reader.
	captureQueue = 4096
	// captureRate is how many frames in a second a reader gets at most, and unless it asks for
	// fewer.
	captureRate = 20000
)

// captureBytes is how much of a frame is kept at most, by the kernel's engine (CAPTURE_BYTES in
// bpf/lib/consts.h) and here.
const captureBytes = 256

// captures passes frames to the clients that capture.
type captures struct {
	capture func(func(*firewall.Captured)) error // the kernel engine's
	on      atomic.Bool                          // at least one client captures

	mu   sync.Mutex           // its place in the lock order: doc.go
	subs map[*captureSub]bool // guarded by mu
}

// captureSub is a client that captures.
type captureSub struct {
	frames chan firewall.Captured
	missed uint64 // guarded by captures.mu; since the last frame
}

func (c *captures) open() (*captureSub, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &captureSub{frames: make(chan firewall.Captured, captureQueue)}
	if c.subs == nil {
		c.subs = map[*captureSub]bool{}
	}
	c.subs[s] = true
	if len(c.subs) == 1 {
		if err := c.capture(c.pass); err != nil {
			delete(c.subs, s)
			return nil, fmt.Errorf("capture: %w", err)
		}
		c.on.Store(true)
	}
	return s, nil
}

func (c *captures) close(s *captureSub) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if delete(c.subs, s); len(c.subs) == 0 {
		c.on.Store(false)
		c.capture(nil) // frames still under way are dropped
	}
}

// pass gives a frame to every client.
func (c *captures) pass(f *firewall.Captured) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := *f
	one.Data = append([]byte(nil), f.Data...)
	for s := range c.subs {
		select {
		case s.frames <- one:
		default:
			s.missed++
		}
	}
}

// tunnelWorker evaluates the packets of the tunnel and copies them to the clients that capture.
type tunnelWorker struct {
	overlay.Worker
	captures *captures
}

// EvaluateBatch implements overlay.Worker.
func (w tunnelWorker) EvaluateBatch(in *firewall.Input, packets [][]byte, out []firewall.Verdict) {
	w.Worker.EvaluateBatch(in, packets, out)
	if !w.captures.on.Load() {
		return
	}
	for i, p := range packets {
		f := firewall.Captured{Data: p[:min(len(p), captureBytes)]}
		f.Event = firewall.Event{Time: int64(in.Now), Hook: in.Hook, Verdict: out[i],
			Length: uint32(len(p))}
		w.captures.pass(&f)
	}
}

// takeMissed returns how many frames a reader has missed since the last call.
func (c *captures) takeMissed(s *captureSub) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := s.missed
	s.missed = 0
	return n
}

// servePackets streams frames as JSON lines until the client disconnects.
func (n *Node) servePackets(w http.ResponseWriter, r *http.Request) {
	filter, err := observe.ParseFilter(r.URL.Query().Get("filter"), n.book.names)
	if err != nil {
		api.Refuse(w, http.StatusBadRequest, err)
		return
	}
	rate := captureRate
	if text := r.URL.Query().Get("rate"); text != "" {
		if rate, err = strconv.Atoi(text); err != nil || rate < 1 || rate > captureRate {
			api.Refuse(w, http.StatusBadRequest,
				fmt.Errorf("rate is %q, not a number from 1 to %d", text, captureRate))
			return
		}
	}
	sub, err := n.captures.open()
	if err != nil {
		api.Refuse(w, http.StatusUnprocessableEntity, err)
		return
	}
	defer n.captures.close(sub)
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	k := capturer{node: n, sub: sub, filter: filter, rate: rate, out: json.NewEncoder(w)}
	// An empty record: from now on no frame is missed.
	if k.out.Encode(api.Captured{Version: api.Version}) != nil {
		return
	}
	if flush.Flush() != nil {
		return
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			if k.reportMissed() != nil {
				return
			}
		case f := <-sub.frames:
			if k.take(&f) != nil {
				return
			}
		}
		// Flush when the queue is empty, whether or not the filter took the last frame.
		if len(sub.frames) == 0 && flush.Flush() != nil {
			return
		}
	}
}

// capturer writes the frames that a filter picks, so many in a second.
type capturer struct {
	node   *Node
	sub    *captureSub
	filter *observe.Filter
	rate   int
	out    *json.Encoder

	second time.Time // when the budget was filled last
	budget int
	missed uint64 // left out since the last one that was written
}

func (k *capturer) take(f *firewall.Captured) error {
	e := k.node.frameEvent(f)
	if !k.filter.Match(&e, &k.node.observer.names) {
		return nil
	}
	if now := time.Now(); now.Sub(k.second) >= time.Second {
		k.budget, k.second = k.rate, now
	}
	if k.budget--; k.budget < 0 {
		k.missed++
		return nil
	}
	a := k.node.captured(f, &e)
	a.Missed, k.missed = k.missed+k.node.captures.takeMissed(k.sub), 0
	return k.out.Encode(a)
}

// reportMissed writes how many frames were left out since the last one that was written, if any.
func (k *capturer) reportMissed() error {
	missed := k.missed + k.node.captures.takeMissed(k.sub)
	if k.missed = 0; missed == 0 {
		return nil
	}
	return k.out.Encode(api.Captured{Version: api.Version, Missed: missed})
}

// frameEvent makes an event of a frame, for the filter: allow picks what passes, deny what is
// dropped.
func (n *Node) frameEvent(f *firewall.Captured) observe.Event {
	e := n.observer.names.Event(&f.Event)
	e.Kind = firewall.EventDrop
	if f.Event.Verdict.Pass {
		e.Kind = firewall.EventStart
	}
	link := packet.LinkRaw
	if f.Ethernet {
		link = packet.LinkEthernet
	}
	// What the snap length has cut off is payload; zeros stand for it.
	whole := f.Data
	if missing := int(f.Event.Length) - len(whole); missing > 0 && f.Event.Length <= 1<<17 {
		whole = append(whole[:len(whole):len(whole)], make([]byte, missing)...)
	}
	var p packet.Packet
	p.DecodeFrame(link, whole)
	if p.Version != 0 {
		e.Proto, e.TCPFlags, e.Length = p.Proto, p.TCPFlags, p.Len()
		e.Src, e.Dst = netip.AddrPortFrom(p.Src(), p.SrcPort()),
			netip.AddrPortFrom(p.Dst(), p.DstPort())
	}
	return e
}

// captured is a frame for people.
func (n *Node) captured(f *firewall.Captured, e *observe.Event) api.Captured {
	v := &f.Event.Verdict
	a := api.Captured{Version: api.Version, Time: e.At, Hook: "in", Recv: e.Recv, Xmit: e.Xmit,
		Verdict: "drop", Rule: v.Rule, Reason: v.Reason.String(),
		State: [...]string{"", "hit", "new",
			"untouched"}[v.State&3], Length: int(f.Event.Length), Link: "raw", Data: f.Data}
	if f.Event.Hook.Dir == firewall.Out {
		a.Hook = "out"
	}
	if v.Pass {
		a.Verdict = "pass"
	}
	if f.Ethernet {
		a.Link = "ethernet"
	}
	n.book.view(func(_ ruleState, p *rule.Program) {
		if v.Rule != 0 && int(v.Slot) < len(p.Rules) && p.Rules[v.Slot].Number == v.Rule {
			a.Text = p.Texts[v.Slot]
		}
	})
	return a
}
