package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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
			return fmt.Errorf("%s %s: the port is published twice", verb, p.Host)
		}
		v.Kind = kind
		want[k] = v
	}
	e.mu.Lock()
	err := e.putPublishedLocked(want, kind)
	e.mu.Unlock()
	if err != nil {
		return err
	}
	return e.endWithdrawn()
}

func publication(p forward.Published) (k weirPublishedKey, v weirPublished, err error) {
	host, pod := p.Host.Addr().Unmap(), p.Pod.Addr().Unmap()
	whole := p.Proto == 0 && p.Host.Port() == 0 && p.Pod.Port() == 0
	switch {
	case !whole && p.Proto != packet.ProtoTCP && p.Proto != packet.ProtoUDP &&
		p.Proto != packet.ProtoSCTP:
		return k, v, fmt.Errorf("protocol %d has no ports to publish", p.Proto)
	case !host.IsValid() || !pod.IsValid() || host.Is4() != pod.Is4():
		return k, v, fmt.Errorf("%s is of another family", p.Pod)
	case whole && (host.IsUnspecified() || pod.IsUnspecified()):
		return k, v, errors.New("an unspecified address cannot be used")
	case !whole && (p.Host.Port() == 0 || p.Pod.Port() == 0):
		return k, v, errors.New("ports go from 1 to 65535")
	case p.Proto == packet.ProtoSCTP && p.Host.Port() != p.Pod.Port():
		return k, v,
			fmt.Errorf("an SCTP port is published under its own number, %d: its checksum covers "+
				"the ports", p.Pod.Port())
	}
	k = weirPublishedKey{Addr: wordsOf(host), Port: p.Host.Port(), Proto: uint8(p.Proto)}
	return k, weirPublished{Addr: wordsOf(pod), Port: uint32(p.Pod.Port())}, nil
}

// putPublishedLocked writes the ports of one kind, to which it adds those of the other.
func (e *Engine) putPublishedLocked(want map[weirPublishedKey]weirPublished,
	kind uint32) (err error) {
	changed := !e.withdrawals.known[kind]
	if e.published == nil { // the first time: what an earlier engine has written
		if e.published,
			err = readAll[weirPublishedKey, weirPublished](e.objects.Published); err != nil {
			return fmt.Errorf("read the published ports: %w", err)
		}
		if err := e.readServicesLocked(); err != nil {
			return err
		}
		e.withdrawals.made++ // it may have ended before the connections did
		// without an engine before, no flow of a service can have come
		e.withdrawals.known[toService] = e.withdrawals.known[toService] || e.previous == nil
		if e.takenOver {
			e.withdrawals.known = [...]bool{true, true, true, true}
		}
	}
	others, taken := uint32(0), []forward.TakenPort(nil)
	for k, v := range e.published {
		w, ok := want[k]
		switch {
		case v.Kind == kind:
			changed = changed || !ok || w != v
		case ok:
			taken = append(taken, forward.TakenPort{Proto: packet.Proto(k.Proto),
				Host: netip.AddrPortFrom(k.Addr.addr(), k.Port), By: errTaken[v.Kind]})
		default:
			want[k] = v
		}
	}
	if len(taken) > 0 {
		slices.SortFunc(taken, func(a, b forward.TakenPort) int {
			return cmp.Or(cmp.Compare(a.Proto, b.Proto), a.Host.Compare(b.Host))
		})
		return &forward.TakenError{Ports: taken}
	}
	for _, v := range want {
		others += bit(v.Kind == toOther || v.Kind == toNATRule)
	}
	pods := uint32(len(want)) - others // what the host itself may call
	if pods > 0 {
		if err := e.attachLocalLocked(); err != nil {
			return err
		}
	}
	if changed {
		e.withdrawals.made++
	}
	old := e.published
	e.published = nil
	if err := putDifference(e.objects.Published, old, want); err != nil {
		return fmt.Errorf("write the published ports: %w", err)
	}
	e.published = want
	e.withdrawals.known[kind] = true
	e.forwarding.Published, e.forwarding.Forwards = uint32(len(want)), others
	if err := e.putForwardingLocked(); err != nil {
		return err
	}
	if pods == 0 {
		return e.detachLocalLocked()
	}
	return nil
}

// errTaken says by kind who has a port that cannot be given away.
var errTaken = [...]error{
	toPod:     errors.New("it is published for a pod; weir pod list"),
	toOther:   errors.New("[[forward]] of weir.toml has it; publish another one"),
	toService: errors.New("it is that of a service; weir service list"),
	toNATRule: errors.New("a rule with nat redirects it; weir fw nat show"),
}
