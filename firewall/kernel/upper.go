package kernel

import "fmt"

// Upper is an upper device, a VLAN, a bond or a bridge, above one lower device, as in
// /sys/class/net/*/upper_*. If both have hooks, what leaves by both is evaluated at the upper one
// only: it has the addresses, and a flow gets one state and one translation.
type Upper struct{ Index, Lower uint32 } // indexes of the interfaces

// SetUppers replaces what is known of upper devices. Those without hooks are known, too, for when
// they get some.
func (e *Engine) SetUppers(all []Upper) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.uppers = all
	return e.putUppersLocked()
}

// putUppersLocked writes the upper devices that have both hooks.
func (e *Engine) putUppersLocked() error {
	want := map[weirUpperKey]uint32{}
	for _, u := range e.uppers {
		if a := e.links[u.Index]; a != nil && !a.half() {
			want[weirUpperKey{Lower: u.Lower, Upper: u.Index}] = 1
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
