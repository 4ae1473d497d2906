package watch

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/coreos/go-systemd/v22/journal"
	"golang.org/x/time/rate"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

const (
	// logRate is how many packets in a second the journal of systemd gets, and logBurst how many at
	// once. This is less than it takes from one service by default (10,000 in 30 s).
	logRate, logBurst = 300, 1000
	// logQueue is how many packets wait for it.
	logQueue = 1024
	// logMessageID is the MESSAGE_ID of all of them (journalctl --new-id128).
	logMessageID = "6d3f8b1c0f5e4a0e9a4f7d1b2c8e5a91"
)

// journald passes what rules with log match to the journal of systemd. It never holds packets up:
// what is too much, or comes while the journal does not read, is counted and mentioned in the next
// entry.
type journald struct {
	send     func(message string, p journal.Priority, vars map[string]string) error
	queue    chan firewall.Event
	limit    *rate.Limiter
	missed   atomic.Uint64 // since the last entry
	entries  atomic.Uint64
	skipped  atomic.Uint64
	describe func(*firewall.Event) (e observe.Event, rule string)
}

// newJournald returns nil on a machine without such a journal.
func newJournald(describe func(*firewall.Event) (observe.Event, string)) *journald {
	if !journal.Enabled() {
		return nil
	}
	return &journald{send: journal.Send, queue: make(chan firewall.Event, logQueue),
		limit: rate.NewLimiter(logRate, logBurst), describe: describe}
}

// put takes an event, or counts it. It is called on the packet path and never blocks.
func (j *journald) put(ev *firewall.Event) {
	if j == nil || ev.Kind != firewall.EventLog {
		return
	}
	if j.limit.Allow() {
		select {
		case j.queue <- *ev:
			return
		default:
		}
	}
	j.miss()
}

func (j *journald) miss() {
	j.missed.Add(1)
	j.skipped.Add(1)
}

// run writes the entries until ctx ends. A write waits for the journal, for ever if it hangs.
func (j *journald) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case ev := <-j.queue:
			j.write(&ev)
		}
	}
}

func (j *journald) write(ev *firewall.Event) {
	e, text := j.describe(ev)
	missed := j.missed.Swap(0)
	message, fields := entry(&e, text)
	if missed > 0 {
		fields["WEIR_MISSED"] = strconv.FormatUint(missed, 10)
	}
	if err := j.send(message, journal.PriInfo, fields); err != nil {
		j.missed.Add(missed)
		j.miss()
		return
	}
	j.entries.Add(1)
}

// entry returns the message and the fields of an event. The message reads like that of ipfw.
func entry(e *observe.Event, text string) (message string, fields map[string]string) {
	fields = map[string]string{"MESSAGE_ID": logMessageID, "SYSLOG_IDENTIFIER": "weir",
		"WEIR_RULE": strconv.Itoa(int(e.Verdict.Rule)), "WEIR_PROTO": e.Proto.String(),
		"WEIR_DIRECTION": hooks[e.Hook.Dir&1], "WEIR_LENGTH": strconv.Itoa(int(e.Length))}
	add := func(name, value string) {
		if value != "" {
			fields[name] = value
		}
	}
	add("WEIR_RULE_TEXT", text)
	add("WEIR_ACTION", actionOf(text))
	add("WEIR_RECV", e.Recv)
	add("WEIR_XMIT", e.Xmit)
	add("WEIR_SRC_NAME", e.From)
	add("WEIR_DST_NAME", e.To)
	add("WEIR_SERVICE", e.Service)
	add("WEIR_TCP_FLAGS", observe.FlagText(e.TCPFlags))
	words := []string{fields["WEIR_RULE"], fields["WEIR_ACTION"], fields["WEIR_PROTO"]}
	for _, end := range []string{"SRC", "DST"} {
		a := e.Src
		if end == "DST" {
			a = e.Dst
		}
		if !a.Addr().IsValid() {
			continue
		}
		fields["WEIR_"+end] = a.Addr().String()
		if a.Port() == 0 {
			words = append(words, a.Addr().String())
			continue
		}
		fields["WEIR_"+end+"_PORT"] = strconv.Itoa(int(a.Port()))
		words = append(words, a.String())
	}
	words = append(words, fields["WEIR_DIRECTION"])
	via := e.Recv
	if e.Hook.Dir == firewall.Out {
		via = e.Xmit
	}
	if via != "" {
		words = append(words, "via", via)
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " "), fields
}

// actionOf returns the action of a rule's text.
func actionOf(text string) string {
	words := strings.Fields(text)
	if len(words) > 2 && words[0] == "prob" {
		words = words[2:]
	}
	if len(words) == 0 {
		return ""
	}
	return words[0]
}
