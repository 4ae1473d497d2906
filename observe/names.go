package observe

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/firewall"
)

// Names looks up names that the node knows and that are not in the event. A nil function finds
// none. Readers call them from any goroutine.
type Names struct {
	// Wall turns a time of the engine's clock into wall time; nil: the Unix epoch begins with the
	// clock.
	Wall func(time.Duration) time.Time
	// Interface returns the name of an interface.
	Interface func(index uint32) string
	// Address returns the name of the owner of an address: a pod, or a table.
	Address func(netip.Addr) string
	// Services are the names of ports.
	Services Services
	// Table looks an address up in a table.
	Table func(name string, a netip.Addr) (value uint32, found bool)
	// Me reports whether an address is the host's own.
	Me func(netip.Addr) bool
	// InterfaceHas reports whether an interface has an address.
	InterfaceHas func(name string, a netip.Addr) bool
}

// Event makes an Event of an engine's event.
func (n *Names) Event(ev *firewall.Event) Event {
	e := Event{Event: *ev}
	if n.Wall != nil {
		e.At = n.Wall(ev.Time)
	} else {
		e.At = time.Unix(0, int64(ev.Time)).UTC()
	}
	if n.Interface != nil {
		if ev.Hook.Recv != 0 {
			e.Recv = n.Interface(ev.Hook.Recv)
		}
		if ev.Hook.Xmit != 0 {
			e.Xmit = n.Interface(ev.Hook.Xmit)
		}
	}
	if n.Address != nil {
		e.From, e.To = n.Address(ev.Src.Addr()), n.Address(ev.Dst.Addr())
	}
	e.Service = n.Services.Name(ev.Proto, ev.Dst.Port())
	return e
}
