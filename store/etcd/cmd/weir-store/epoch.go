package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
)

// keepEvery is how often the epoch and the list of keys are looked at.
const keepEvery = time.Minute

// keep has this host know the epoch, so that a backup that is restored begins a later one. It also
// has it know the list of keys, so that it has seen the first one before it invites.
func (h home) keep(ctx context.Context, s store.Store, complain func(error)) error {
	for {
		if err := h.keepOnce(ctx, s); err != nil && ctx.Err() == nil {
			complain(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(keepEvery):
		}
	}
}

func (h home) keepOnce(ctx context.Context, s store.Store) error {
	l, _, err := h.list(ctx, s)
	if err != nil {
		return err
	}
	doc, err := readIdentity(ctx, s)
	if err != nil {
		return err
	}
	head, there, err := document[cluster.Head](ctx, s, cluster.HeadKey)
	if err != nil {
		return err
	}
	known, err := h.epoch()
	if err != nil {
		return err
	}
	of := &head
	if !there {
		of = nil
	}
	epoch, err := members.Epoch(known, &doc, of, l.Keys)
	return errors.Join(err, h.writeEpoch(epoch))
}

// document reads one document; there is false if it does not exist.
func document[T any, D interface {
	*T
	cluster.Document
}](ctx context.Context, s store.Store, key string) (doc T, there bool, err error) {
	got, err := s.Read(ctx, key, 0)
	if err != nil || len(got.Entries) == 0 {
		return doc, false, err
	}
	if doc, err = cluster.Decode[T, D](got.Entries[0].Value); err != nil {
		err = fmt.Errorf("%s: %w", key, err)
	}
	return doc, true, err
}

func readIdentity(ctx context.Context, s store.Store) (cluster.Identity, error) {
	doc, there, err := document[cluster.Identity](ctx, s, cluster.IdentityKey)
	if err == nil && !there {
		err = fmt.Errorf("%s: %w: it does not exist", cluster.IdentityKey, cluster.ErrDocument)
	}
	return doc, err
}

// epoch returns the highest epoch that was written down.
func (h home) epoch() (uint64, error) {
	text, err := os.ReadFile(h.file(epochFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", h.file(epochFile), err)
	}
	return n, nil
}

func (h home) writeEpoch(n uint64) error {
	had, err := h.epoch()
	if err != nil || had >= n {
		return err
	}
	return atomicfile.Write(h.file(epochFile), fmt.Appendln(nil, n))
}
