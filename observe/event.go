package observe

import (
	"fmt"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// Event is a firewall.Event with what only the node that saw it knows.
type Event struct {
	firewall.Event
	At         time.Time // wall time
	Recv, Xmit string    // names of the hook's interfaces, "" for none
	// names of Src and Dst (a pod, a table that has them), "" if they have none
	From, To string
	Service  string // name of Dst's port, "" if it has none
	// Lost is how many events are missing before this one. With Kind 0 the Event tells of nothing
	// else.
	Lost uint64
}

// kinds are the words for what happened, in text, filters, JSON and metrics.
var kinds = [...]string{
	firewall.EventStart: "start", firewall.EventEnd: "end", firewall.EventDrop: "drop",
	firewall.EventLog: "log", firewall.EventRefuse: "refuse",
}

// lostKind is the word for a gap.
const lostKind = "lost"

// KindName returns the word for a kind of event; "lost" for 0.
func KindName(k firewall.EventKind) string {
	if k == 0 {
		return lostKind
	}
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return fmt.Sprintf("kind-%d", uint8(k))
}

// kindOf finds a kind by its word.
func kindOf(word string) (firewall.EventKind, bool) {
	for k, name := range kinds {
		if name == word && name != "" {
			return firewall.EventKind(k), true
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

// protocols are the names used in events.
var protocols = map[uint8]string{
	packet.ProtoICMP: "icmp", packet.ProtoIGMP: "igmp", packet.ProtoTCP: "tcp",
	packet.ProtoUDP: "udp", packet.ProtoGRE: "gre",
	packet.ProtoESP: "esp", packet.ProtoAH: "ah", packet.ProtoICMPv6: "icmp6",
	packet.ProtoSCTP: "sctp", packet.ProtoUDPLite: "udplite",
}

// ProtoName returns the name of a protocol, or its number.
func ProtoName(p uint8) string {
	if name, ok := protocols[p]; ok {
		return name
	}
	return fmt.Sprint(p)
}

// flagLetters are TCP's flags from the lowest bit on.
const flagLetters = "FSRPAUEC"

// flagText writes TCP flags as letters: "S", "SA".
func flagText(flags uint8) string {
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

// Refused says whether the event tells of a packet that was not let through.
func (e *Event) Refused() bool { return Refused(&e.Event) }

// Refused says whether an event tells of a packet that was not let through.
func Refused(e *firewall.Event) bool {
	return e.Kind == firewall.EventDrop || e.Kind == firewall.EventRefuse
}
