package main

import (
	"bytes"
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
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
)

// revocations are the serial numbers that a weir-store has ever seen as revoked. They lie beside
// the store: a backup that is older than a revocation does not have it.
type revocations struct {
	file string
	of   cluster.Serial // the cluster; set by trust
	ca   []cluster.Key  // who signs certificates of hosts; set by trust
	news chan struct{}  // has an element when the file lacks some

	boundTo   string        // the file of bound
	boundNews chan struct{} // has an element when it lacks some
	saving    sync.Mutex    // one writes the file of bound at a time

	mu     sync.Mutex
	bound  members.Certificates    // guarded by mu; read by trust
	stale  bool                    // guarded by mu; the file of bound lacks some
	keys   cluster.KeyList         // guarded by mu; who signs removal records
	hosts  map[cluster.Serial]bool // guarded by mu
	others map[cluster.Serial]bool // guarded by mu; of admins and feeds
}

// revokedSerials is the file. The two are apart, since what the store says of admins and feeds has
// no signature: one who wrote it there must not revoke a host by it.
type revokedSerials struct {
	Hosts  []cluster.Serial `json:"hosts"`
	Others []cluster.Serial `json:"revoked"` // of admins and feeds
}

// UnmarshalJSON implements json.Unmarshaler. A list is of an earlier Weir, which had both in one.
func (s *revokedSerials) UnmarshalJSON(text []byte) error {
	if bytes.HasPrefix(text, []byte("[")) {
		err := json.Unmarshal(text, &s.Hosts)
		s.Others = s.Hosts
		return err
	}
	type plain revokedSerials
	return json.Unmarshal(text, (*plain)(s))
}

// readRevocations reads the file. A damaged one is an error: without it a removed host could come
// back.
func (h home) readRevocations() (*revocations, error) {
	r := &revocations{file: h.file(revokedFile), news: make(chan struct{}, 1),
		boundTo: h.file(boundFile), boundNews: make(chan struct{}, 1),
		bound: members.Certificates{}, hosts: map[cluster.Serial]bool{},
		others: map[cluster.Serial]bool{}}
	text, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	var all revokedSerials
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.file, err)
	}
	for _, s := range all.Hosts {
		r.hosts[s] = true
	}
	for _, s := range all.Others {
		r.others[s] = true
	}
	return r, nil
}

// trust reads whose signatures note believes.
func (r *revocations) trust(h home) error {
	own, err := identity.ReadCredential(h.file(storeFile))
	if err != nil {
		return err
	}
	if r.of, err = clusterOf(own.CAs[0]); err != nil {
		return err
	}
	if r.ca, err = h.caKeys(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.keys, err = h.pinnedKeys(); err != nil {
		return err
	}
	r.bound, err = h.bound(r.ca)
	return err
}

func (r *revocations) revokedLocked(s cluster.Serial) bool { return r.hosts[s] }

// all returns them, ordered.
func (r *revocations) all() revokedSerials {
	r.mu.Lock()
	defer r.mu.Unlock()
	return revokedSerials{slices.SortedFunc(maps.Keys(r.hosts), cluster.Serial.Compare),
		slices.SortedFunc(maps.Keys(r.others), cluster.Serial.Compare)}
}

// admit is members.Admit, but of no host whose certificate is revoked, whatever the store has of
// it: an earlier state of the database may have been put back.
func (r *revocations) admit(get server.Get, p identity.Peer) (server.Admission, error) {
	r.mu.Lock()
	over := p.ID.Kind == identity.Host && r.hosts[cluster.Serial(p.Serial)]
	r.mu.Unlock()
	if over {
		return server.Admission{}, fmt.Errorf("this certificate of host %s is revoked", p.ID.Name)
	}
	return members.Admit(get, p)
}

// note takes those of changes of the store: server.Config.Changed. trust comes first. It believes
// what hosts believe: a restore has an administrator sign what is revoked.
func (r *revocations) note(changes []store.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, signers := len(r.hosts)+len(r.others), r.followLocked(changes)
	for _, ch := range changes {
		for _, s := range cluster.RevokedHosts(ch.Entry, r.ca, signers) {
			if len(r.hosts) < cluster.MaxRevoked || r.keys.Locked() {
				r.hosts[s] = true
			}
		}
		for _, s := range cluster.RevokedOthers(ch.Entry) {
			if len(r.others) < cluster.MaxRevoked {
				r.others[s] = true
			}
		}
	}
	if r.bound.Note(changes, r.ca, r.revokedLocked) {
		r.stale = true
		wake(r.boundNews)
	}
	if len(r.hosts)+len(r.others) > before {
		wake(r.news)
	}
}

func wake(news chan<- struct{}) {
	select {
	case news <- struct{}{}:
	default: // it will be written anyway
	}
}

// followLocked takes a new list of the keys of administrators, and returns which of them sign the
// removal records among the changes.
func (r *revocations) followLocked(changes []store.Change) []cluster.Key {
	var passed []cluster.Key
	for _, ch := range changes {
		if ch.Key != cluster.KeysKey || ch.Deleted {
			continue
		}
		doc, err := cluster.Decode[cluster.AdminKeys](ch.Value)
		if err != nil {
			continue
		}
		next, _ := followKeys(r.keys, r.of, &doc) // what does not follow changes nothing
		if next.Count != r.keys.Count {
			passed = r.keys.Passed(next, &doc)
		}
		r.keys = next
	}
	return r.keys.Signers(passed)
}

// keep writes the files when there is more for them, until the context ends.
func (r *revocations) keep(ctx context.Context, complain func(error)) error {
	var second sync.WaitGroup
	defer second.Wait()
	second.Go(func() { keepFile(ctx, r.boundNews, r.saveBound, complain) })
	keepFile(ctx, r.news, func() error { return writeJSON(r.file, r.all()) }, complain)
	return ctx.Err()
}

// saveBound writes the file of bound, unless it has everything. Of several at once, one writes.
func (r *revocations) saveBound() error {
	r.saving.Lock()
	defer r.saving.Unlock()
	r.mu.Lock()
	stale, bound := r.stale, maps.Clone(r.bound)
	r.stale = false
	r.mu.Unlock()
	if !stale {
		return nil
	}
	err := writeJSON(r.boundTo, listed(bound))
	if err != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stale = true
	}
	return err
}

func writeJSON(file string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(text, '\n'))
}

// keepFile writes a file when there is news for it, until the context ends.
func keepFile(ctx context.Context, news <-chan struct{}, write func() error,
	complain func(error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-news:
		}
		for {
			err := write()
			if err == nil {
				break
			}
			complain(err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(retryRevocations):
			}
		}
	}
}

// retryRevocations is when a file that could not be written is tried again.
const retryRevocations = 5 * time.Second
