// Package observe makes all views of a firewall from one stream of events, so the views always
// agree. These are the live list, the table of top talkers and refused pairs, JSON lines, the
// history that outlives the agent, and metrics.
//
// # The path of an event
//
// An engine publishes firewall.Events to a [Hub], one by one from the packet path or in batches
// from the kernel's ring buffer. The Hub counts them and copies them into the bounded queue of each
// [Subscription]; without one it only counts. A full queue loses events and counts them: the reader
// learns how many are missing, and where.
//
// [Names] turns a firewall.Event into an [Event]: with wall-clock time, names of interfaces and
// names of pods. The reader does this work, not the packet path.
//
// # Filters
//
// [ParseFilter] takes words for what happened, then the condition of a rule, both optional:
//
//	deny tcp from table(app=web)
//	start udp from any to any 53 in via eth0
//	reason tcp-window
//	rule 100-200 not src-ip 10.0.0.0/8
//
// # JSON lines
//
// [Event.AppendJSON] writes one line for one event, [ParseEvent] reads it. A saved stream is read
// and filtered like a live one.
package observe
