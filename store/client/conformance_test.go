package client_test

import (
	"testing"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/storetest"
)

// suite makes the suite's faults between a client, a server and the model.
type suite struct {
	*wired
	limited []string // the entries that admit hosts
	opened  []store.Store
}

// permitted is how many hosts with limited rights a test of the suite may have. Their entries are
// there from the beginning, so that they do not come between what a test commits.
const permitted = 3

const testTimeout = 5 * time.Minute

func newSuite(t *testing.T) storetest.Cluster {
	c := &suite{wired: newPiped(t, "w/", suiteSilence)}
	for _, name := range []string{"u1", "u2", "u3"}[:permitted] {
		c.limited = append(c.limited, c.admitKey(name))
	}
	c.admitAll(t)
	return c
}

func (c *suite) admitAll(t *testing.T) {
	t.Helper()
	for _, key := range c.limited {
		if _, err := c.model.Commit(t.Context(),
			store.Txn{Put: []store.Entry{{Key: key, Value: []byte("1")}}}); err != nil {
			t.Fatal(err)
		}
	}
}

// Open implements storetest.Cluster.
func (c *suite) Open(t *testing.T, grants []store.Grant) store.Store {
	s := c.client(t, grants)
	c.opened = append(c.opened, s)
	return s
}

// Compact implements storetest.Cluster.
func (c *suite) Compact(_ *testing.T, revision int64) { c.model.Compact(revision) }

// Restart implements storetest.Cluster: both the store and weir-store.
func (c *suite) Restart(t *testing.T) {
	c.stop()
	c.model.Restart()
	c.start(t)
	for _, s := range c.opened { // a call on a connection that is gone fails once
		for late := time.Now().Add(testTimeout); ; {
			_, err := s.Read(t.Context(), "h", 0)
			if err == nil {
				break
			}
			if time.Now().After(late) {
				t.Fatal(err)
			}
		}
	}
}

// Partition implements storetest.Cluster.
func (c *suite) Partition(_ *testing.T, cut bool) { c.proxy.Cut(cut) }

// Silence implements storetest.Cluster.
func (c *suite) Silence() time.Duration { return suiteSilence }

// suiteSilence is short, and nothing but memory is used: the clock is that of a bubble.
const suiteSilence = 3 * time.Second

// Empty implements storetest.Cluster.
func (c *suite) Empty(t *testing.T) {
	c.model.Rewind(0)
	c.admitAll(t)
}

func TestConformance(t *testing.T) {
	storetest.RunInBubbles(t, newSuite)
}
