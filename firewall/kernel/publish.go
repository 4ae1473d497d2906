package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// SetPublished replaces the set of published ports, see forward.Forwarder. Connections through a
// port that is no longer there end.
func (e *Engine) SetPublished(ports []forward.Published) error {
	want := map[weirPublishedKey]weirPublished{}
	for _, p := range ports {
		k, v, err := publication(p)
		if err != nil {
			return fmt.Errorf("publish %s: %w", p.Host, err)
		}
		if _, double := want[k]; double {
			return fmt.Errorf("publish %s: given to two pods", p.Host)
		}
		want[k] = v
	}
	e.mu.Lock()
	changed, err := e.putPublishedLocked(want)
	e.mu.Unlock()
	if err != nil || !changed {
		return err
	}
	return e.endWhere(func(x *entry) bool { return unpublished(x, want) })
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

// putPublishedLocked writes the ports and reports whether one was taken back or given to another
// pod.
func (e *Engine) putPublishedLocked(want map[weirPublishedKey]weirPublished) (changed bool,
	err error) {
	if e.published == nil { // the first time: what an earlier engine has written
		if e.published,
			err = readAll[weirPublishedKey, weirPublished](e.objects.Published); err != nil {
			return false, fmt.Errorf("read the published ports: %w", err)
		}
	}
	for k, v := range e.published {
		w, ok := want[k]
		changed = changed || !ok || w != v
	}
	if len(want) > 0 {
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
	e.forwarding.Published = uint32(len(want))
	if err := e.putForwardingLocked(); err != nil {
		return changed, err
	}
	if len(want) == 0 {
		return changed, e.detachLocalLocked()
	}
	return changed, nil
}

// unpublished reports that an entry is the wire side of a translation whose port is published no
// longer.
func unpublished(x *entry, want map[weirPublishedKey]weirPublished) bool {
	flags := x.sides[0].Flags
	if x.sides[0].Rule != natRule || flags&metaWire == 0 || flags&metaSource != 0 {
		return false
	}
	to, port := weirAddress{Hi: x.addr[2], Lo: x.addr[3]}, uint16(x.tag>>32)
	if x.sides[1].Flags&metaMade != 0 { // the high end called
		to, port = weirAddress{Hi: x.addr[0], Lo: x.addr[1]}, uint16(x.tag>>48)
	}
	any := netip.IPv6Unspecified()
	if to.addr().Is4() {
		any = netip.IPv4Unspecified()
	}
	for _, a := range []weirAddress{to, wordsOf(any)} {
		if _, ok := want[weirPublishedKey{Addr: a, Port: port, Proto: uint8(x.tag >> 24)}]; ok {
			return false
		}
	}
	return true
}
