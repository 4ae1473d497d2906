package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// Follow is what follows the weir-stores. Its functions are called from one goroutine.
type Follow struct {
	// Copy returns the copy that agrees with the store: store.Guarded.Stored(). Its revision and
	// digests say where to continue.
	Copy func() *store.Copy

	// Epoch returns the epoch of the copy. A weir-store of an earlier one is left for the next.
	Epoch func() uint64

	// Step moves the copy forward by one step, for which it calls store.Guarded.Step: the
	// transactions since the last one, merged if there are several, or a whole difference. A
	// difference may have a lower revision than the copy: the store was put back. Before the next
	// call, Copy has the step's revision. An error ends Follow.
	//
	// It may call Read and Commit of the same client. What arrives meanwhile is merged.
	Step func(b store.Batch) error

	// Fits returns an error for a step that is too large for this host. The connection ends, and
	// the copy stays as it is. nil: every step fits.
	Fits func(b store.Batch) error

	// Failed gets every error that interrupts Follow, which then tries again.
	Failed func(err error)
}

// Follow keeps a copy up to date until the context ends, and returns the context's error, or that
// of Step.
func (c *Client) Follow(ctx context.Context, f Follow) error {
	c.mu.Lock()
	busy := c.follows
	c.follows = true
	c.mu.Unlock()
	if busy {
		return errors.New("the client follows already")
	}
	defer func() {
		c.mu.Lock()
		c.follows = false
		c.mu.Unlock()
	}()
	for failures := 0; ctx.Err() == nil; {
		steps, err := c.followOnce(ctx, f)
		var fatal *stepError
		if errors.As(err, &fatal) {
			return fatal.err
		}
		if ctx.Err() != nil {
			break
		}
		f.Failed(err)
		var wait *waitError
		pause := time.Duration(0)
		if errors.As(err, &wait) {
			// It has done its work by that: this is not a failure. One that is not what it should
			// be must not keep the host away from the others.
			pause = min(wait.For, c.config.Silence/3)
		} else {
			if failures++; steps > 0 {
				failures = 1
			}
			pause = Pause(failures, err, c.config.Random())
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return ctx.Err()
}

// stepError is an error of Step.
type stepError struct{ err error }

func (e *stepError) Error() string { return e.err.Error() }

// EarlierError means that a weir-store is in an earlier epoch than the host.
type EarlierError struct {
	Address     string
	Epoch, Have uint64
}

func (e *EarlierError) Error() string {
	return fmt.Sprintf("%v: %s is in epoch %d of the cluster, this host in %d: an old store runs "+
		"there", store.ErrBehind, e.Address, e.Epoch, e.Have)
}

func (e *EarlierError) Unwrap() error { return store.ErrBehind }

// followOnce follows until the first error, and returns how often the store was heard.
func (c *Client) followOnce(ctx context.Context, f Follow) (steps int, err error) {
	s, err := c.session(ctx)
	if err != nil {
		return 0, err
	}
	// weir-store cannot be asked to stop: the connection ends with this function.
	defer func() { _ = s.end(errors.New("it follows no longer")) }()
	in := newInbox()
	s.mu.Lock()
	s.inbox = in
	s.mu.Unlock()
	have := c.epoch(f)
	if s.welcome.Epoch < have {
		return 0, &EarlierError{s.conn.RemoteAddr().String(), s.welcome.Epoch, have}
	}
	at := f.Copy()
	hello := wire.Follow{Epoch: have, Revision: at.Revision, Sum: at.Sum()}
	if err := s.send(ctx, hello.Encode()); err != nil {
		return 0, err
	}
	for {
		select {
		case <-ctx.Done():
			return steps, ctx.Err()
		case <-s.done:
			return steps, s.ended()
		case <-in.changed:
		}
		n, err := in.take().apply(ctx, s, f)
		if steps += n; err != nil {
			return steps, err
		}
	}
}

func (c *Client) epoch(f Follow) uint64 {
	if f.Epoch == nil {
		return 0
	}
	return f.Epoch()
}

// apply makes the steps, and returns how many.
func (n news) apply(ctx context.Context, s *session, f Follow) (steps int, err error) {
	if n.difference != nil {
		b, err := n.difference.against(f.Copy())
		if err != nil {
			return 0, err
		}
		if err := f.step(b); err != nil {
			return 0, err
		}
		steps++
	}
	if n.batch != nil {
		b, err := n.batch.batch(f.Copy())
		if err != nil {
			return steps, err
		}
		if err := f.step(b); err != nil {
			return steps, err
		}
		steps++
	}
	if n.asked {
		var digests wire.Digests
		for i := range digests {
			digests[i] = f.Copy().Digest(i)
		}
		return steps, s.send(ctx, digests.Encode())
	}
	return steps, nil
}

func (f *Follow) step(b store.Batch) error {
	if f.Fits != nil {
		if err := f.Fits(b); err != nil {
			return err
		}
	}
	if err := f.Step(b); err != nil {
		return &stepError{err}
	}
	return nil
}

// against returns the step from a copy to a difference.
func (d *difference) against(c *store.Copy) (store.Batch, error) {
	b := store.Batch{Revision: d.revision}
	for i, entries := range d.buckets {
		changes, err := c.DiffBucket(i, entries)
		if err != nil {
			return b, err
		}
		b.Changes = append(b.Changes, changes...)
	}
	slices.SortFunc(b.Changes, func(x, y store.Change) int { return cmp.Compare(x.Key, y.Key) })
	return b, nil
}
