package kernel

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// SetPublished replaces the set of published ports, see forward.Forwarder. Connections through a
// port that is no longer there, or leads elsewhere, end.
func (e *Engine) SetPublished(ports []forward.Published) error {
	return e.publish(ports, toPod)
}

// SetForwards replaces the set of forwarded ports: published ports of which Pod is not a pod, but
// any address that the host's stack routes to. Connections end as with SetPublished.
func (e *Engine) SetForwards(ports []forward.Published) error {
	return e.publish(ports, toOther)
}

// What a published port leads to: struct published of bpf/lib/pod.h.
const (
	toPod   = 0
	toOther = 1
)

// publish replaces the ports of one kind.
func (e *Engine) publish(ports []forward.Published, kind uint32) error {
	verb := [...]string{toPod: "publish", toOther: "forward"}[kind]
	want := map[weirPublishedKey]weirPublished{}
	for _, p := range ports {
		k, v, err := publication(p)
		if err != nil {
			return fmt.Errorf("%s %s: %w", verb, p.Host, err)
		}
		if _, double := want[k]; double {
			return fmt.Errorf("%s %s: the port is given away twice", verb, p.Host)
		}
		v.Forwarded = kind
		want[k] = v
	}
	e.mu.Lock()
	changed, err := e.putPublishedLocked(want, kind)
	all := maps.Clone(e.published)
	e.mu.Unlock()
	if err != nil || !changed {
		return err
	}
	targets, err := e.targets()
	if err != nil {
		return err
	}
	return e.endWhere(func(x *entry) bool { return unpublished(x, all, targets) })
}

func publication(p forward.Published) (k weirPublishedKey, v weirPublished, err error) {
	host, pod := p.Host.Addr().Unmap(), p.Pod.Addr().Unmap()
	switch {
	case p.Proto != packet.ProtoTCP && p.Proto != packet.ProtoUDP && p.Proto != packet.ProtoSCTP:
		return k, v, fmt.Errorf("protocol %d has no ports to publish", p.Proto)
	case !host.IsValid() || !pod.IsValid() || host.Is4() != pod.Is4():
		return k, v, fmt.Errorf("%s is of another family", p.Pod)
	case p.Host.Port() == 0 || p.Pod.Port() == 0:
		return k, v, errors.New("ports go from 1 to 65535")
	case p.Proto == packet.ProtoSCTP && p.Host.Port() != p.Pod.Port():
		return k, v,
			fmt.Errorf("an SCTP port is published under its own number, %d: its checksum covers "+
				"the ports", p.Pod.Port())
	}
	k = weirPublishedKey{Addr: wordsOf(host), Port: p.Host.Port(), Proto: uint8(p.Proto)}
	return k, weirPublished{Addr: wordsOf(pod), Port: uint32(p.Pod.Port())}, nil
}

// putPublishedLocked writes the ports of one kind, to which it adds those of the other, and reports
// whether one was taken back or given to another target.
func (e *Engine) putPublishedLocked(want map[weirPublishedKey]weirPublished,
	kind uint32) (changed bool, err error) {
	if e.published == nil { // the first time: what an earlier engine has written
		if e.published,
			err = readAll[weirPublishedKey, weirPublished](e.objects.Published); err != nil {
			return false, fmt.Errorf("read the published ports: %w", err)
		}
	}
	others := uint32(0)
	for k, v := range e.published {
		w, ok := want[k]
		switch {
		case v.Forwarded == kind:
			changed = changed || !ok || w != v
		case ok:
			return false, fmt.Errorf("%d port %d of %s: %w", k.Proto, k.Port, k.Addr.addr(),
				errTaken[kind])
		default:
			want[k] = v
		}
	}
	for _, v := range want {
		others += v.Forwarded
	}
	pods := uint32(len(want)) - others // what the host itself may call
	if pods > 0 {
		if err := e.attachLocalLocked(); err != nil {
			return changed, err
		}
	}
	old := e.published
	e.published = nil
	if err := putDifference(e.objects.Published, old, want); err != nil {
		return changed, fmt.Errorf("write the published ports: %w", err)
	}
	e.published = want
	e.forwarding.Published, e.forwarding.Forwards = uint32(len(want)), others
	if err := e.putForwardingLocked(); err != nil {
		return changed, err
	}
	if pods == 0 {
		return changed, e.detachLocalLocked()
	}
	return changed, nil
}

// errTaken says by kind why a port cannot be given away.
var errTaken = [...]error{
	toPod:   errors.New("[[forward]] of weir.toml has it; publish another one"),
	toOther: errors.New("it is published for a pod; weir pod list"),
}

// targets returns where the flows of all translations lead to, by the places of their inner
// entries.
func (e *Engine) targets() (map[uint32]netip.AddrPort, error) {
	all := map[uint32]netip.AddrPort{}
	for x, err := range e.entries() {
		if err != nil {
			return nil, err
		}
		if x.translation() && x.sides[0].Flags&metaWire == 0 {
			_, all[x.place] = x.called()
		}
	}
	return all, nil
}

// unpublished reports that an entry is the wire side of a translation whose port is published no
// longer, or leads to another target than the flow does.
func unpublished(x *entry, want map[weirPublishedKey]weirPublished,
	targets map[uint32]netip.AddrPort) bool {
	flags := x.sides[0].Flags
	if x.sides[0].Rule != natRule || flags&metaWire == 0 || flags&metaSource != 0 {
		return false
	}
	_, to := x.called()
	any := netip.IPv6Unspecified()
	if to.Addr().Is4() {
		any = netip.IPv4Unspecified()
	}
	for _, a := range []netip.Addr{to.Addr(), any} {
		v, ok := want[weirPublishedKey{Addr: wordsOf(a), Port: to.Port(),
			Proto: uint8(x.tag >> 24)}]
		if ok {
			leads := netip.AddrPortFrom(v.Addr.addr(), uint16(v.Port))
			now, known := targets[x.sides[0].Track]
			return known && now != leads
		}
	}
	return true
}
