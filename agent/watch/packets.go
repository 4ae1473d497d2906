package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/packet"
)

// ServePackets streams frames as JSON lines until the client disconnects.
func (o *Observer) ServePackets(w http.ResponseWriter, r *http.Request) {
	filter, err := observe.ParseFilter(r.URL.Query().Get("filter"), o.config.Rules.Names())
	if err != nil {
		api.WriteError(w, http.StatusBadRequest, err)
		return
	}
	perSecond := captureRate
	if text := r.URL.Query().Get("rate"); text != "" {
		if perSecond, err = strconv.Atoi(text); err != nil || perSecond < 1 ||
			perSecond > captureRate {
			api.WriteError(w, http.StatusBadRequest,
				fmt.Errorf("rate %q is not between 1 and %d", text, captureRate))
			return
		}
	}
	sub, err := o.Captures.open()
	if err != nil {
		api.WriteError(w, http.StatusUnprocessableEntity, err)
		return
	}
	defer o.Captures.close(sub)
	defer endWrites(r.Context(), w)()
	w.Header().Set("Content-Type", "application/x-ndjson")
	flush := http.NewResponseController(w)
	k := capturer{observer: o, sub: sub, filter: filter,
		limit: rate.NewLimiter(rate.Limit(perSecond), perSecond), out: json.NewEncoder(w)}
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
	observer *Observer
	sub      *captureSub
	filter   *observe.Filter
	limit    *rate.Limiter
	out      *json.Encoder
	missed   uint64 // left out since the last one that was written
}

func (k *capturer) take(f *firewall.Captured) error {
	e := k.observer.frameEvent(f)
	if !k.filter.Match(&e, &k.observer.names) {
		return nil
	}
	if !k.limit.Allow() {
		k.missed++
		return nil
	}
	a := k.observer.captured(f, &e)
	a.Missed, k.missed = k.missed+k.observer.Captures.takeMissed(k.sub), 0
	return k.out.Encode(a)
}

// reportMissed writes how many frames were left out since the last one that was written, if any.
func (k *capturer) reportMissed() error {
	missed := k.missed + k.observer.Captures.takeMissed(k.sub)
	if k.missed = 0; missed == 0 {
		return nil
	}
	return k.out.Encode(api.Captured{Version: api.Version, Missed: missed})
}

// frameEvent makes an event of a frame, for the filter: allow picks what passes, deny what is
// dropped.
func (o *Observer) frameEvent(f *firewall.Captured) observe.Event {
	e := o.names.Event(&firewall.Event{Time: f.Time, Hook: f.Hook, Verdict: f.Verdict,
		Length: f.Length})
	e.Kind = firewall.EventDrop
	if f.Verdict.Pass {
		e.Kind = firewall.EventStart
	}
	link := packet.LinkRaw
	if f.Ethernet {
		link = packet.LinkEthernet
	}
	// What the snap length has cut off is payload; zeros stand for it.
	whole := f.Data
	if missing := int(f.Length) - len(whole); missing > 0 && f.Length <= 1<<17 {
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
func (o *Observer) captured(f *firewall.Captured, e *observe.Event) api.Captured {
	v := &f.Verdict
	a := api.Captured{Version: api.Version, Time: e.At, Hook: "in", Recv: e.Recv, Xmit: e.Xmit,
		Verdict: "drop", Rule: v.Rule, Reason: v.Reason.String(),
		State: [...]string{"", "hit", "new",
			"untouched"}[v.State&3], Length: int(f.Length), Link: "raw", Data: f.Data}
	if f.Hook.Dir == firewall.Out {
		a.Hook = "out"
	}
	if v.Pass {
		a.Verdict = "pass"
	}
	if f.Ethernet {
		a.Link = "ethernet"
	}
	a.Text = o.config.Rules.RuleText(int(v.Slot), v.Rule)
	return a
}
