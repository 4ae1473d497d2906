package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/identity"
)

// ended are the serial numbers that a weir-store has ever seen as ended. They lie beside the store:
// a backup that is older than the end of a certificate does not have it.
type ended struct {
	file string
	of   cluster.Serial // the cluster; set by trust
	ca   []cluster.Key  // who signs certificates of hosts; set by trust
	news chan struct{}  // has an element when the file lacks some

	mu    sync.Mutex
	keys  cluster.KeyList         // guarded by mu; who signs removal records
	known map[cluster.Serial]bool // guarded by mu
}

// readEnded reads the file. A damaged one is an error: without it a removed host could come back.
func (h home) readEnded() (*ended, error) {
	e := &ended{file: h.file(endedFile), news: make(chan struct{}, 1),
		known: map[cluster.Serial]bool{}}
	text, err := os.ReadFile(e.file)
	if errors.Is(err, fs.ErrNotExist) {
		return e, nil
	}
	var all []cluster.Serial
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.file, err)
	}
	for _, s := range all {
		e.known[s] = true
	}
	return e, nil
}

// trust reads whose signatures note believes.
func (e *ended) trust(h home) error {
	own, err := readCredential(h.file(storeFile))
	if err != nil {
		return err
	}
	of, err := identity.CACluster(own.CAs[0])
	if err != nil {
		return err
	}
	if err := e.of.UnmarshalText([]byte(of)); err != nil {
		return fmt.Errorf("the cluster of the CA: %w", err)
	}
	if e.ca, err = h.caKeys(); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys, err = h.pinnedKeys()
	return err
}

// all returns them, ordered.
func (e *ended) all() []cluster.Serial {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Keys(e.known), cluster.Serial.Compare)
}

// note takes those of changes of the store: server.Config.Changed. trust comes first. It believes
// what hosts believe: a restore has an administrator sign what has ended.
func (e *ended) note(changes []store.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before, signers := len(e.known), e.followLocked(changes)
	for _, ch := range changes {
		for _, s := range cluster.EndedBy(ch.Entry, e.ca, signers) {
			e.known[s] = true
		}
	}
	if len(e.known) == before {
		return
	}
	select {
	case e.news <- struct{}{}:
	default:
	}
}

// followLocked takes a new list of the keys of administrators, and returns which of them sign the
// removal records among the changes.
func (e *ended) followLocked(changes []store.Change) []cluster.Key {
	var passed []cluster.Key
	for _, ch := range changes {
		if ch.Key != cluster.KeysKey || ch.Deleted {
			continue
		}
		doc, err := cluster.Decode[cluster.AdminKeys](ch.Value)
		if err != nil {
			continue
		}
		next, _ := followKeys(e.keys, e.of, &doc) // what does not follow changes nothing
		if next.Count != e.keys.Count {
			passed = e.keys.Passed(next, &doc)
		}
		e.keys = next
	}
	return e.keys.Signers(passed)
}

// keep writes the file when there are more, until the context ends.
func (e *ended) keep(ctx context.Context, complain func(error)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.news:
		}
		for {
			text, err := json.Marshal(e.all())
			if err == nil {
				err = atomicfile.Write(e.file, append(text, '\n'))
			}
			if err == nil {
				break
			}
			complain(err)
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(endedAgain):
			}
		}
	}
}

// endedAgain is when a file that could not be written is tried again.
const endedAgain = 5 * time.Second
