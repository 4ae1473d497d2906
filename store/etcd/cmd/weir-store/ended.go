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

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// ended are the serial numbers that a weir-store has ever seen as ended. They lie beside the store:
// a backup that is older than the end of a certificate does not have it.
type ended struct {
	file string
	ca   []cluster.Key // who signs certificates of hosts; set before note is called
	news chan struct{} // has an element when the file lacks some

	mu    sync.Mutex
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

// all returns them, ordered.
func (e *ended) all() []cluster.Serial {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.SortedFunc(maps.Keys(e.known), cluster.Serial.Compare)
}

// note takes those of changes of the store: server.Config.Changed.
func (e *ended) note(changes []store.Change) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := len(e.known)
	for _, ch := range changes {
		for _, s := range cluster.EndedBy(ch.Entry, e.ca) {
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
				err = write(e.file, append(text, '\n'))
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
