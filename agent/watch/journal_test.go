package watch

import (
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/observe"
)

// TestReaderDuringAFlood: a reader that begins while the journal leaves events out gets each event,
// or learns that it is lost, whatever the journal records later.
func TestReaderDuringAFlood(t *testing.T) {
	journal, err := observe.OpenJournal(t.TempDir(), time.Hour, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer journal.Close()
	const kept, all, live = 3, 10, 2
	o := &Observer{journal: journal, top: observe.NewTop(topPairs), limit: rate.NewLimiter(0, kept)}
	o.names.Wall = o.clock.wall
	o.clock.set()
	begin := time.Now().Add(-time.Minute)
	o.sub = o.hub.Subscribe(readerQueue)
	for range all {
		o.hub.Publish(&firewall.Event{Kind: firewall.EventDrop})
	}
	past, sub, err := o.listen(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	for range live {
		o.hub.Publish(&firewall.Event{Kind: firewall.EventDrop})
	}
	came, lost := 0, uint64(0)
	for e := range past {
		lost += e.Lost
		if e.Kind != 0 {
			came++
		} else if e.At.Before(begin) {
			t.Errorf("events were lost at %v", e.At)
		}
	}
	events, more, err := sub.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if came != kept || lost != all-kept || len(events) != live || more != 0 {
		t.Errorf("of %d events %d came and %d are lost, of %d more %d came and %d are lost", all, came,
			lost, live, len(events), more)
	}
}
