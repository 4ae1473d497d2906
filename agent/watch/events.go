package watch

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/observe"
)

// ServeEvents streams events as JSON lines: those since a time first, if asked for, then live ones
// until the client disconnects, unless it asks with follow=0 for the past alone. Events that the
// filter does not pick never leave the node.
func (o *Observer) ServeEvents(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	filter, err := observe.ParseFilter(q.Get("filter"), o.config.Rules.Names())
	if err != nil {
		api.WriteError(w, http.StatusBadRequest, err)
		return
	}
	since, err := parseSince(q.Get("since"), time.Now())
	if err != nil {
		api.WriteError(w, http.StatusBadRequest, err)
		return
	}
	past, sub, err := o.listen(since)
	if err != nil {
		api.WriteError(w, http.StatusUnprocessableEntity, err)
		return
	}
	defer sub.Close()
	defer endWrites(r.Context(), w)()
	s := stream{out: bufio.NewWriterSize(w, 64<<10), filter: filter, names: &o.names}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	if past != nil {
		for e := range past {
			s.write(&e)
		}
	}
	if s.out.Flush() != nil || flush.Flush() != nil || q.Get("follow") == "0" {
		return
	}
	for {
		events, lost, err := sub.Next(r.Context())
		if err != nil {
			return
		}
		for i := range events {
			e := s.names.Event(&events[i])
			s.write(&e)
		}
		if lost > 0 {
			s.write(&observe.Event{At: time.Now(), Lost: lost})
		}
		if s.out.Flush() != nil || flush.Flush() != nil {
			return
		}
	}
}

// lastWrite is how long a client has to take what is written when its stream ends.
const lastWrite = time.Second

// endWrites has the writes of a stream fail soon after ctx has ended, until stop is called. A
// client may take nothing for as long as it likes, and misses what comes meanwhile; it does not
// hold up the end of the node.
func endWrites(ctx context.Context, w http.ResponseWriter) (stop func() bool) {
	c := http.NewResponseController(w)
	return context.AfterFunc(ctx, func() {
		_ = c.SetWriteDeadline(time.Now().Add(lastWrite)) // or the connection is over
	})
}

// stream writes the events that a filter picks.
type stream struct {
	out    *bufio.Writer
	filter *observe.Filter
	names  *observe.Names
	line   []byte
}

// write passes an event on. An error shows at the next flush.
func (s *stream) write(e *observe.Event) {
	if s.filter.Match(e, s.names) {
		s.line = e.AppendJSON(s.line[:0])
		s.out.Write(s.line)
	}
}

// parseSince reads a time (RFC 3339) or a duration before now; "" is the zero time.
func parseSince(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("since %q is neither a duration like 5m nor a time like %s", text,
			now.UTC().Format(time.RFC3339))
	}
	return at, nil
}
