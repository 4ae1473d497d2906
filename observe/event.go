package observe

import (
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// Event is a firewall.Event with names and wall time, which only the node of the event knows.
type Event struct {
	firewall.Event
	At         time.Time // wall time
	Recv, Xmit string    // names of the hook's interfaces, "" for none
	// names of Src and Dst (a pod, a table that has them), "" if they have none
	From, To string
	Service  string // name of Dst's port, "" if it has none
	// Lost is how many events are missing before this one. With Kind 0 the Event is only this gap.
	Lost uint64
}

// lostKind is the word for a gap.
const lostKind = "lost"

// KindName returns the word for a kind of event; "lost" for 0.
func KindName(k firewall.EventKind) string {
	if k == 0 {
		return lostKind
	}
	return k.String()
}

// kindOf finds a kind by its word.
func kindOf(word string) (firewall.EventKind, bool) {
	for k := firewall.EventStart; k <= firewall.EventRefuse; k++ {
		if k.String() == word {
			return k, true
		}
	}
	return 0, word == lostKind
}

// reasonOf finds a reason by its word.
func reasonOf(word string) (firewall.Reason, bool) {
	for r := range firewall.ReasonDecode + firewall.Reason(packet.NumReasons) {
		if r.String() == word {
			return r, true
		}
	}
	return 0, false
}

// flagLetters are TCP's flags from the lowest bit on.
const flagLetters = "FSRPAUEC"

// FlagText writes TCP flags as letters: "S", "SA".
func FlagText(flags uint8) string {
	var b [8]byte
	n := 0
	for i := range len(flagLetters) {
		if flags>>i&1 == 1 {
			b[n] = flagLetters[i]
			n++
		}
	}
	return string(b[:n])
}

// Refused reports whether the event is about a packet that was refused.
func (e *Event) Refused() bool { return Refused(&e.Event) }

// Refused reports whether an event is about a packet that was refused.
func Refused(e *firewall.Event) bool {
	return e.Kind == firewall.EventDrop || e.Kind == firewall.EventRefuse
}
