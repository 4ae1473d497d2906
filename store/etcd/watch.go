package etcd

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/store"
)

// Watch implements store.Store.
//
// etcd's client waits for ever when the member does not answer, or is cut off from the others
// (etcd#8980). So the watch asks for progress three times in the time of silence, demands a member
// with a leader, and ends when it hears nothing. A watch from a revision that the store has not
// reached waits for it without a word, or delivers what is older (etcd#20221). Every answer has the
// store's revision, which is compared. A watch that begins behind the newest revision gets no
// answer about its progress until something changes (mvcc.progressIfSync). So it begins with the
// revision that the caller has, whose changes are left out. A deletion at the revision of a
// compaction may be lost (etcd#18089, etcd#19179; Debian 12 has such a version). So before the
// first delivery the revision where the watch begins must still be readable.
func (d *Driver) Watch(ctx context.Context, name string,
	after int64) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		w := d.newWatch(ctx)
		defer w.close()
		opts := append(below(name), clientv3.WithRev(max(after, 1)), clientv3.WithCreatedNotify())
		more, err := w.deliver(w.watcher.Watch(w.ctx, name, opts...), after, func() error {
			return d.kept(ctx, name, after)
		}, yield)
		switch {
		case !more || ctx.Err() != nil:
		case w.silent.Load():
			yield(store.Batch{}, d.secured.explain(fmt.Errorf("%w: silent for %v",
				store.ErrUnavailable, d.silence)))
		case err != nil:
			yield(store.Batch{}, d.translate(ctx, err))
		default:
			yield(store.Batch{}, fmt.Errorf("%w: the watch was closed", store.ErrUnavailable))
		}
	}
}

// kept returns an error if the store does not keep a revision any more.
func (d *Driver) kept(ctx context.Context, name string, revision int64) error {
	if revision == 0 {
		return nil
	}
	call, cancel := context.WithTimeout(ctx, d.silence)
	defer cancel()
	_, err := d.client.Get(call, name, clientv3.WithRev(revision), clientv3.WithCountOnly())
	return err
}

// watch is a watch with a connection's stream of its own: progress is reported per stream.
type watch struct {
	watcher clientv3.Watcher
	ctx     context.Context // ends with the caller's, or by silence
	cancel  context.CancelFunc
	timer   *time.Timer // ends ctx
	silence time.Duration
	silent  atomic.Bool
	asked   chan struct{} // closed when nothing asks for progress any more
}

func (d *Driver) newWatch(ctx context.Context) *watch {
	w := &watch{watcher: clientv3.NewWatcher(d.client), silence: d.silence,
		asked: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancel(clientv3.WithRequireLeader(ctx))
	w.timer = time.AfterFunc(d.silence, func() {
		w.silent.Store(true)
		w.cancel()
	})
	go w.ask()
	return w
}

func (w *watch) close() {
	w.timer.Stop()
	w.cancel()
	<-w.asked
	w.watcher.Close()
}

// ask asks for progress until the watch ends.
func (w *watch) ask() {
	defer close(w.asked)
	tick := time.NewTicker(w.silence / 3)
	defer tick.Stop()
	for {
		select {
		case <-w.ctx.Done():
			return
		case <-tick.C:
			// An error is followed by silence, or by the end of the stream.
			_ = w.watcher.RequestProgress(w.ctx)
		}
	}
}

// deliver yields what arrives until the stream ends, with its error, or the caller wants no more.
// It calls begin before the first batch. The time that the caller takes is not silence.
func (w *watch) deliver(responses clientv3.WatchChan, after int64, begin func() error,
	yield func(store.Batch, error) bool) (more bool, err error) {
	last := after
	for r := range responses {
		w.timer.Stop()
		if err := r.Err(); err != nil {
			return true, err
		}
		if r.Header.Revision < last {
			return true, fmt.Errorf("%w: at %d, not %d", store.ErrBehind, r.Header.Revision, last)
		}
		list := batches(r.Events)
		if r.IsProgressNotify() {
			list = []store.Batch{{Revision: r.Header.Revision}}
		}
		for _, b := range list {
			if b.Revision == after && len(b.Changes) > 0 {
				continue // the caller has it
			}
			if begin != nil {
				if err := begin(); err != nil {
					return true, err
				}
				begin = nil
			}
			if b.Revision < last || b.Revision == last && len(b.Changes) > 0 {
				return true, fmt.Errorf("%w: %d after %d", store.ErrBehind, b.Revision, last)
			}
			last = b.Revision
			if !yield(b, nil) {
				return false, nil
			}
		}
		if !w.silent.Load() {
			w.timer.Reset(w.silence)
		}
	}
	return true, nil
}
