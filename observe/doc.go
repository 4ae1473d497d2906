// Package observe makes views of what a firewall does out of one stream of events, so that no two
// views can disagree: the live list, the table of who talks and who is refused, JSON lines, the
// history that outlives the agent, and metrics.
//
// # The way of an event
//
// An engine hands firewall.Events to a [Hub], one by one from the packet path or in batches from
// the kernel's ring buffer. The Hub counts them and copies them into the bounded queue of each
// [Sub]; where nobody listens that is all. A queue that is full loses events and counts them: the
// reader is told how many are missing, and where.
//
// A reader turns a firewall.Event into an [Event] by [Names]: wall time for the engine's clock,
// names of interfaces, names of pods. That costs the reader and not the packet.
//
// # Filters
//
// [ParseFilter] takes words that say what happened, then the condition of a rule, both optional:
//
//	deny tcp from table(app=web)
//	start udp from any to any 53 in via eth0
//	reason tcp-window
//	rule 100-200 not src-ip 10.0.0.0/8
//
// # JSON lines
//
// [Event.AppendJSON] writes one line for one event, [ParseEvent] reads it; a stream that was saved
// is replayed and filtered like a live one.
package observe
