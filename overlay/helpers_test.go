package overlay

import (
	"sync"
	"sync/atomic"
	"testing"
)

// counted counts how often each of its items was worked on, and whether a part was done twice.
type counted struct {
	items []atomic.Int32
	parts [parts]atomic.Int32
}

func (c *counted) do(part, from, to int) {
	c.parts[part].Add(1)
	for i := from; i < to; i++ {
		c.items[i].Add(1)
	}
}

// TestHelpers: whatever the size, and however many call at once, each item is worked on once.
func TestHelpers(t *testing.T) {
	end := make(chan struct{})
	for _, count := range []int{-1, 0, 1, 3, mostHelpers, 100} {
		h := startHelpers(count, end)
		var callers sync.WaitGroup
		for caller := range 4 {
			callers.Go(func() {
				for n := caller; n <= batchSize; n += 3 {
					for _, bytes := range []int{0, bulk - 1, bulk, 1 << 20} {
						checkHelpers(t, h, n, bytes)
					}
				}
			})
		}
		callers.Wait()
	}
	// when the helpers have ended, a batch is still done
	close(end)
	checkHelpers(t, startHelpers(3, end), 100, 1<<20)
}

func checkHelpers(t *testing.T, h *helpers, n, bytes int) {
	var done sync.WaitGroup
	c := &counted{items: make([]atomic.Int32, n)}
	h.run(c, n, bytes, &done)
	for i := range c.items {
		if got := c.items[i].Load(); got != 1 {
			t.Errorf("%d helpers, %d items: item %d: %d times", h.count, n, i, got)
		}
	}
	used := 0
	for p := range c.parts {
		got := int(c.parts[p].Load())
		if used += got; got > 1 {
			t.Errorf("part %d: %d times", p, got)
		}
	}
	if want := bytes >= bulk && h.count > 0 && n > leastPart; used > 1 != want {
		t.Errorf("%d helpers, %d items, %d bytes: %d parts", h.count, n, bytes, used)
	}
}
