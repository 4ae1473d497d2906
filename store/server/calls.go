package server

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/wire"
)

// call runs a read or a transaction beside others. When there are too many, the connection waits.
func (c *conn) call(do func()) error {
	select {
	case c.calls <- struct{}{}:
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
	c.running.Go(func() {
		defer func() { <-c.calls }()
		do()
	})
	return nil
}

// limited is the store with what the connection may do now.
func (c *conn) limited() store.Store {
	a := c.admission()
	return store.Limit(&admitted{Store: c.server.config.Store, conn: c}, a.Grants)
}

func (c *conn) read(m wire.Read) {
	if strings.HasSuffix(m.Name, "/") {
		// The answer is in memory until the client has taken it.
		select {
		case c.trees <- struct{}{}:
			defer func() { <-c.trees }()
		case <-c.ctx.Done():
			return
		}
	}
	snapshot, err := c.limited().Read(c.ctx, m.Name, m.Revision)
	c.server.Counters.Reads.add(err)
	if err != nil {
		c.result(m.Number, 0, err)
		return
	}
	unsent, answer := c.server.state.unsent, &block{bytes: sizeOf(snapshot)}
	unsent.hold(c, []*block{answer})
	defer unsent.written(c, answer)
	for frame := range wire.Results(m.Number, snapshot) {
		if c.write(frame) != nil {
			return
		}
	}
}

func (c *conn) commit(m wire.Commit) {
	err := m.Txn.Check()
	var revision int64
	if err == nil {
		revision, err = c.limited().Commit(c.ctx, m.Txn)
	}
	c.server.Counters.Transactions.add(err)
	c.result(m.Number, revision, err)
}

// result sends the answer without entries. An error of writing has ended the connection.
func (c *conn) result(number uint64, revision int64, err error) {
	if err != nil && c.ctx.Err() != nil {
		return
	}
	_ = c.write(wire.Result{Number: number, Revision: revision, Err: err}.Encode())
}

// watch begins a watch.
func (c *conn) watch(m wire.Watch) error {
	ctx, err := c.newWatch(m.Number)
	switch {
	case errors.Is(err, store.ErrInvalid):
		c.result(m.Number, 0, err)
		return nil
	case err != nil:
		return err
	}
	c.running.Go(func() {
		defer c.endWatch(m.Number)
		for b, err := range c.limited().Watch(ctx, m.Name, m.After) {
			if err != nil {
				c.result(m.Number, 0, err)
				return
			}
			if c.write(wire.Event{Number: m.Number, Batch: b}.Encode()) != nil {
				return
			}
		}
	})
	return nil
}

// newWatch returns what a watch ends with. An error of store.ErrInvalid ends the watch only.
func (c *conn) newWatch(number uint64) (context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches[number] != nil {
		return nil, fmt.Errorf("two watches with the number %d", number)
	}
	if len(c.watches) >= maxWatches {
		return nil, fmt.Errorf("%w: %d watches on one connection", store.ErrInvalid, maxWatches)
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.watches[number] = cancel
	return ctx, nil
}

func (c *conn) endWatch(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.watches[number]; cancel != nil {
		cancel()
		delete(c.watches, number)
	}
}

// admitted is the store with the checks of the admission. Its transactions compare that the
// certificate is still admitted: the removal of a host and its last transaction have an order,
// whatever weir-store knows of it.
type admitted struct {
	store.Store
	conn *conn
}

// mayRead asks the admission of now about a read or a watch.
func (a *admitted) mayRead(name string, watch bool) (by Admission, err error) {
	if by, err = a.conn.current(); err == nil && by.CheckRead != nil {
		err = by.CheckRead(name, watch)
	}
	return by, err
}

// Read implements store.Store.
func (a *admitted) Read(ctx context.Context, name string, revision int64) (store.Snapshot, error) {
	by, err := a.mayRead(name, false)
	if err == nil {
		err = a.conn.spend(ctx, a.conn.server.reads, by.Reads, readCost, "reads")
	}
	if err != nil {
		return store.Snapshot{}, err
	}
	answer, err := a.Store.Read(ctx, name, revision)
	a.conn.charge(by.Reads, answer)
	return answer, err
}

// Watch implements store.Store.
func (a *admitted) Watch(ctx context.Context, name string, after int64) iter.Seq2[store.Batch,
	error] {
	if _, err := a.mayRead(name, true); err != nil {
		return func(yield func(store.Batch, error) bool) { yield(store.Batch{}, err) }
	}
	return a.Store.Watch(ctx, name, after)
}

// maxAdmissions is how often a transaction is tried when what admits the certificate changes.
const maxAdmissions = 5

// Commit implements store.Store.
func (a *admitted) Commit(ctx context.Context, t store.Txn) (int64, error) {
	by, err := a.conn.current()
	if err != nil {
		return 0, err
	}
	if by.Check != nil {
		if err := by.Check(a.conn.server.state.get, t); err != nil {
			return 0, err
		}
	}
	if err := a.conn.hasSpace(t, by); err != nil {
		return 0, err
	}
	cost := costOf(t)
	err = a.conn.spend(ctx, a.conn.server.writes, by.Writes, cost, "writes")
	if err != nil {
		return 0, err
	}
	writes := int64(cost)
	a.conn.server.writing.Add(writes)
	defer a.conn.server.writing.Add(-writes)
	own := t.Compare
	for range maxAdmissions {
		if by, err = a.conn.current(); err != nil {
			return 0, err
		}
		if by.Key == "" { // it is admitted by no entry of the store
			return a.Store.Commit(ctx, t)
		}
		if slices.ContainsFunc(own, func(c store.Compare) bool { return c.Key == by.Key }) {
			// One comparison of a key is possible, and this one is as good if it is true.
			if !slices.Contains(own, store.Compare{Key: by.Key, Revision: by.Revision}) {
				return 0, a.stale(ctx, own, by)
			}
			return a.Store.Commit(ctx, t)
		}
		if len(own) >= store.MaxOperations {
			return 0, fmt.Errorf("%w: %d comparisons, at most %d: one more is that of the "+
				"certificate", store.ErrInvalid, len(own), store.MaxOperations-1)
		}
		t.Compare = append(slices.Clip(own), store.Compare{Key: by.Key, Revision: by.Revision})
		revision, err := a.Store.Commit(ctx, t)
		var conflict *store.ConflictError
		if !errors.As(err, &conflict) || conflict.Key != by.Key {
			return revision, err
		}
		if err := a.again(ctx); err != nil {
			return 0, err
		}
	}
	return 0, fmt.Errorf("%w: the certificate's entry changes all the time", store.ErrUnavailable)
}

// again reads what admits the certificate.
func (a *admitted) again(ctx context.Context) error {
	by, err := a.conn.server.readAdmission(ctx, a.conn.peer)
	if err == nil {
		a.conn.setAdmission(by)
		return nil
	}
	if !errors.Is(err, store.ErrUnavailable) {
		a.conn.server.Counters.Ended.Add(1)
		go a.conn.refuse(err)
		return fmt.Errorf("%w: %w", store.ErrPermission, err)
	}
	return err
}

// stale answers a transaction that compares the certificate's entry with another revision than that
// by which it was admitted: if the entry has changed meanwhile, the next try is right.
func (a *admitted) stale(ctx context.Context, own []store.Compare, by Admission) error {
	if err := a.again(ctx); err != nil {
		return err
	}
	for _, c := range own {
		if c.Key == by.Key {
			return &store.ConflictError{Compare: c, Have: a.conn.admission().Revision}
		}
	}
	return store.ErrConflict
}
