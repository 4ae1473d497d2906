package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

const (
	// maxPages is how many frames an answer may have that its call has not taken.
	maxPages = 64
	// maxEvents is how many transactions a watch may be behind.
	maxEvents = 1024
	// maxAnswer bounds the memory of the answer to a read.
	maxAnswer = 256 << 20
)

// Read implements store.Store.
func (c *Client) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	if revision < 0 {
		return store.Snapshot{}, fmt.Errorf("%w: revision %d", store.ErrInvalid, revision)
	}
	return c.call(ctx, func(number uint64) []byte {
		return wire.Read{Number: number, Name: name, Revision: revision}.Encode()
	})
}

// Commit implements store.Store.
func (c *Client) Commit(ctx context.Context, t store.Txn) (int64, error) {
	if err := t.Check(); err != nil {
		return 0, err
	}
	if n := len(wire.Commit{Txn: t}.Encode()); n > wire.MaxFrame {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", store.ErrInvalid, n, wire.MaxFrame)
	}
	s, err := c.call(ctx, func(number uint64) []byte {
		return wire.Commit{Number: number, Txn: t}.Encode()
	})
	return s.Revision, err
}

// callTime is how long a request and its answer take at most: enough for 2 MiB on a line of 64
// kbit/s. One who has stolen a weir-store, or is on the way to it, could send a byte now and then,
// and keep a command for ever.
const callTime = 5 * time.Minute

// call sends a request and collects its answer. It ends when nothing of the answer comes for the
// time of silence; all of a large answer may take longer than that on a slow line, up to callTime.
func (c *Client) call(ctx context.Context, request func(number uint64) []byte) (store.Snapshot,
	error) {
	s, err := c.sessionInTime(ctx)
	if err != nil {
		return store.Snapshot{}, err
	}
	return c.collect(ctx, s, request)
}

// sessionInTime returns a live session, within the time of silence.
func (c *Client) sessionInTime(ctx context.Context) (*session, error) {
	limited, cancel := context.WithTimeout(ctx, c.config.Silence)
	defer cancel()
	s, err := c.session(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		err = fmt.Errorf("%w: no answer of %s for %v", store.ErrUnavailable,
			strings.Join(c.config.Stores(), " "), c.config.Silence)
	}
	return s, err
}

func (c *Client) collect(ctx context.Context, s *session, request func(number uint64) []byte) (
	snapshot store.Snapshot, err error) {
	number, waiting := s.begin(maxPages)
	defer s.forget(number)
	limited, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if err := s.send(limited, request(number)); err != nil {
		if ctx.Err() == nil && limited.Err() != nil {
			return snapshot, s.tooLong()
		}
		return snapshot, cmp.Or(ctx.Err(), s.broken())
	}
	silent := time.NewTimer(c.config.Silence)
	defer silent.Stop()
	for size := 0; ; silent.Reset(c.config.Silence) {
		select {
		case <-limited.Done():
			if ctx.Err() != nil {
				return store.Snapshot{}, ctx.Err()
			}
			return store.Snapshot{}, s.tooLong()
		case <-silent.C:
			// While a frame arrives, of this answer or before it, the line is slow.
			if !s.arriving.Load() {
				return store.Snapshot{}, fmt.Errorf("%w: no answer of %s for %v",
					store.ErrUnavailable, s.address, c.config.Silence)
			}
		case <-s.done:
			return store.Snapshot{}, s.broken()
		case a, ok := <-waiting.frames:
			switch {
			case !ok || a.result == nil:
				return store.Snapshot{}, s.end(errors.New("the answer is not a result"))
			case a.result.Err != nil:
				return store.Snapshot{}, a.result.Err
			}
			snapshot.Revision = a.result.Revision
			snapshot.Entries = append(snapshot.Entries, a.result.Entries...)
			if size += sizeOf(a.result.Entries); size > maxAnswer {
				return store.Snapshot{}, s.end(errors.New("an answer is too large"))
			}
			if !a.result.More {
				return snapshot, nil
			}
		}
	}
}

// tooLong ends a session with a weir-store that took more than callTime for a call: the next call
// goes to another one.
func (s *session) tooLong() error {
	err := fmt.Errorf("%w: %s did not finish its answer within %v: the line is too slow, or "+
		"someone delays it; look at that host, or try again", store.ErrUnavailable, s.address,
		callTime)
	_ = s.end(err)
	return err
}

// sizeOf returns about what entries take in memory.
func sizeOf(entries []store.Entry) (size int) {
	for _, e := range entries {
		size += entryCost + len(e.Key) + len(e.Value)
	}
	return size
}

// Watch implements store.Store. It is for what Follow does not follow, such as reports of hosts:
// the store delivers every transaction for each watch. A watch that is more than 1,024 transactions
// behind ends with store.ErrUnavailable.
func (c *Client) Watch(ctx context.Context, name string,
	after int64) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		err := c.watch(ctx, name, after, func(b store.Batch) bool { return yield(b, nil) })
		if err != nil && ctx.Err() == nil {
			yield(store.Batch{}, err)
		}
	}
}

// watch calls yield for each transaction, and returns why it ended: nil if yield wants no more.
func (c *Client) watch(ctx context.Context, name string, after int64,
	yield func(store.Batch) bool) error {
	if after < 0 {
		return fmt.Errorf("%w: revision %d", store.ErrInvalid, after)
	}
	s, err := c.sessionInTime(ctx)
	if err != nil {
		return err
	}
	number, waiting := s.begin(maxEvents)
	defer func() {
		if s.forget(number) && s.ended() == nil {
			// an error ends the session
			_ = s.send(context.WithoutCancel(ctx), wire.EncodeCancel(number))
		}
	}()
	watch := wire.Watch{Number: number, Name: name, After: after}
	if err := s.send(ctx, watch.Encode()); err != nil {
		return cmp.Or(ctx.Err(), s.broken())
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return s.broken()
		case a, ok := <-waiting.frames:
			switch {
			case !ok:
				return fmt.Errorf("%w: the watch is too far behind", store.ErrUnavailable)
			case a.result != nil && a.result.Err != nil:
				return a.result.Err
			case a.result != nil:
				return fmt.Errorf("%w: the watch was ended", store.ErrUnavailable)
			case !yield(a.event.Batch):
				return nil
			}
		}
	}
}
