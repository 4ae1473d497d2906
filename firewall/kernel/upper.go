package kernel

import (
	"encoding/binary"
	"fmt"
)

// UpperKind is the kind of an upper device.
type UpperKind uint32

// The kinds. A VLAN takes the frames with its tag, a bond all frames of its ports, a bridge those
// to link-layer addresses of its own.
const (
	UpperVLAN   UpperKind = upperVLAN
	UpperBond   UpperKind = upperBond
	UpperBridge UpperKind = upperBridge
)

// Upper is an upper device above one lower device, as in /sys/class/net/*/upper_*. If both have
// hooks, what crosses both is evaluated at the upper one only: it has the addresses, and a frame
// gets one state and one translation.
type Upper struct {
	Index, Lower uint32 // of the upper and of the lower device
	Kind         UpperKind
	Proto, ID    uint16     // of the tag of a VLAN
	MACs         [2][6]byte // of a bridge: its own and that of its port
}

// SetUppers replaces what is known of upper devices. Those without hooks are known, too: when they
// get hooks, they evaluate their frames, and when they lose them, their lower devices do.
func (e *Engine) SetUppers(all []Upper) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uppers = all
	return e.putUppersLocked()
}

// putUppersLocked writes the upper devices that have both hooks.
func (e *Engine) putUppersLocked() error {
	want := map[weirUpperKey]weirUpper{}
	for _, u := range e.uppers {
		a := e.links[u.Index]
		if a == nil || a.half() {
			continue
		}
		v := weirUpper{Ifindex: u.Index, Kind: uint32(u.Kind)}
		k := weirUpperKey{Ifindex: u.Lower, Vlan: u.ID, Proto: networkOrder(u.Proto)}
		want[k] = v
		if u.Kind != UpperBridge {
			continue
		}
		for _, k.Mac = range u.MACs {
			want[k] = v
		}
	}
	if e.uppersPut != nil && len(e.uppersPut)+len(want) == 0 {
		return nil
	}
	err := putDifference(e.objects.Uppers, e.uppersPut, want)
	if e.uppersPut = want; err != nil {
		e.uppersPut = nil
		return fmt.Errorf("write the upper devices: %w", err)
	}
	if some := bit(len(want) > 0); e.config.Uppers != some {
		e.config.Uppers = some
		return e.putConfigLocked()
	}
	return nil
}

// networkOrder returns the number whose memory has the bytes of n as they are on the wire.
func networkOrder(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}
