// Package admin is what an administrator does with a cluster: load a version of the rules, confirm
// it, and look at the hosts. It works on any store.Store with the rights of cluster.AdminGrants.
package admin

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
)

// Loading is a new text of one scope.
type Loading struct {
	Scope   cluster.Scope
	Name    string // of the file, for messages
	Text    string
	Parse   func(name, text string) (*rule.Ruleset, error)
	By      string           // who loads it
	Trial   time.Duration    // 0: none
	Session *cluster.Session // may be nil
	Sign    Signer
}

// state is what an administrator reads of the store, at one revision.
type state struct {
	identity cluster.Identity
	head     cluster.Head
	keys     cluster.AdminKeys
	keysAt   store.Compare
	at       []store.Compare // of the head and of the members
	nodes    []cluster.Node
	records  []store.Entry   // of removals
	shared   map[string]bool // names of shared tables
}

func read(ctx context.Context, s store.Store) (*state, error) {
	all, err := readDocuments(ctx, s)
	if err != nil {
		return nil, err
	}
	st := &state{shared: map[string]bool{}}
	revisions := map[string]int64{}
	for _, e := range all {
		revisions[e.Key] = e.Revision
		switch {
		case e.Key == cluster.IdentityKey:
			st.identity, err = cluster.Decode[cluster.Identity](e.Value)
		case e.Key == cluster.HeadKey:
			st.head, err = cluster.Decode[cluster.Head](e.Value)
		case e.Key == cluster.KeysKey:
			st.keys, err = cluster.Decode[cluster.AdminKeys](e.Value)
		case strings.HasPrefix(e.Key, cluster.NodeTree):
			if cluster.CheckName(strings.TrimPrefix(e.Key, cluster.NodeTree)) != nil {
				continue // no host has that name, and weir node remove refuses it
			}
			var n cluster.Node
			n, err = cluster.Decode[cluster.Node](e.Value)
			st.nodes = append(st.nodes, n)
		case strings.HasPrefix(e.Key, cluster.RemovedTree):
			st.records = append(st.records, e)
		case strings.HasPrefix(e.Key, cluster.TableTree):
			name, _, _ := strings.Cut(strings.TrimPrefix(e.Key, cluster.TableTree), "/")
			st.shared[name] = true
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Key, err)
		}
	}
	if st.head.Number.Count == 0 {
		st.head.Number = cluster.Number{Epoch: st.identity.Epoch}
	}
	for _, key := range []string{cluster.HeadKey, cluster.MembersKey} {
		st.at = append(st.at, store.Compare{Key: key, Revision: revisions[key]})
	}
	st.keysAt = store.Compare{Key: cluster.KeysKey, Revision: revisions[cluster.KeysKey]}
	return st, nil
}

// hosts returns the names of all hosts.
func (st *state) hosts() (names []string) {
	for i := range st.nodes {
		names = append(names, st.nodes[i].Name)
	}
	return names
}

// errTrial refuses a load while a version is on trial.
type errTrial struct{ number cluster.Number }

func (e errTrial) Error() string { return fmt.Sprintf("version %v is on trial", e.number) }

// Hint returns how to end the trial.
func (errTrial) Hint() string {
	return "keep it: weir fw confirm; go back now: weir fw revert"
}

// Load checks a new text with those of the other scopes for every host, and writes the version that
// has it. It returns the version and the names of the hosts that have to enforce it.
func Load(ctx context.Context, s store.Store, l Loading) (*cluster.Head, []string, error) {
	digest, parts, err := cluster.EncodeText(l.Text)
	if err == nil {
		err = l.checkNames()
	}
	if err != nil {
		return nil, nil, err
	}
	for {
		st, err := read(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		if st.head.Trial != nil {
			return nil, nil, errTrial{st.head.Number}
		}
		if err := l.Sign.mayFollow(st); err != nil {
			return nil, nil, err
		}
		scopes := maps.Clone(st.head.Scopes)
		if scopes == nil {
			scopes = map[cluster.Scope]cluster.Digest{}
		}
		scopes[l.Scope] = digest
		if err := st.check(ctx, s, l, scopes); err != nil {
			return nil, nil, err
		}
		next := st.head.Next(scopes, l.By, l.Trial)
		next.Session = l.Session
		if err := write(ctx, s, &next, st.at, parts, l.Sign.Key); err == nil {
			return &next, st.hosts(), nil
		} else if !errors.Is(err, store.ErrConflict) {
			return nil, nil, err
		}
	}
}

// checkNames refuses names that this machine has from /etc/services or /etc/protocols. A host that
// lacks one refuses the version, and one may have another number for it. A weir-store reads no such
// file, and lets no host join whose rules have one.
func (l *Loading) checkNames() error {
	if _, err := l.Parse(l.Name, l.Text); err != nil {
		return err
	}
	_, err := rule.ParseFile(l.Name, l.Text, nil)
	var unknown rule.Errors
	if errors.As(err, &unknown) {
		for _, e := range unknown {
			e.Hint = "write the number: not every host of the cluster knows this name"
		}
	}
	return err
}

// check refuses a version that a host could not have.
func (st *state) check(ctx context.Context, s store.Store, l Loading,
	scopes map[cluster.Scope]cluster.Digest) (err error) {
	v := cluster.Version{}
	for scope, digest := range scopes {
		name, text := string(scope), l.Text
		if scope == l.Scope {
			name = l.Name
		} else if text, err = fetch(ctx, s, digest); err != nil {
			return fmt.Errorf("the rules of scope %s: %w", scope, err)
		}
		if v[scope], err = l.Parse(name, text); err != nil {
			return err
		}
		for _, table := range slices.Sorted(maps.Keys(v[scope].Tables)) {
			if st.shared[table] {
				return fmt.Errorf("%s defines table %s, which is a shared one", name, table)
			}
		}
	}
	hosts := make([]cluster.Host, len(st.nodes))
	for i := range st.nodes {
		hosts[i] = st.nodes[i].Host()
	}
	return v.Check(hosts)
}

func fetch(ctx context.Context, s store.Store, digest cluster.Digest) (string, error) {
	parts, err := s.Read(ctx, fmt.Sprintf("%s%v/", cluster.TextTree, digest), 0)
	if err != nil {
		return "", err
	}
	return cluster.DecodeText(digest, parts.Entries)
}

// write writes texts, which never change, and then the head.
func write(ctx context.Context, s store.Store, h *cluster.Head, at []store.Compare,
	parts []store.Entry, key ed25519.PrivateKey) error {
	if key != nil {
		if err := h.Sign(key); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if _, err := s.Commit(ctx, store.Txn{Put: []store.Entry{p}}); err != nil {
			return err
		}
	}
	value, err := cluster.Encode(h)
	if err != nil {
		return err
	}
	_, err = s.Commit(ctx, store.Txn{Compare: at,
		Put: []store.Entry{{Key: cluster.HeadKey, Value: value}}})
	return err
}

// errNoReport refuses to confirm a version that hosts have switched to and that may have cut them
// off.
type errNoReport struct{ hosts []string }

func (e errNoReport) Error() string {
	return fmt.Sprintf("no report since they switched: %s", strings.Join(e.hosts, ", "))
}

// Hint returns what to do.
func (errNoReport) Hint() string {
	return "they report when half of the trial is over; weir fw confirm --without HOST does " +
		"not wait for one that is stolen or away, --anyway for none"
}

// Without are hosts whose reports a confirmation does not demand.
type Without struct {
	All   bool
	Hosts []string
}

// Confirm confirms the version on trial, unless a host that has switched to it was not heard of
// since.
func Confirm(ctx context.Context, s store.Store, by string, sign Signer, without Without) (
	*cluster.Head, []string, error) {
	st, err := read(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	next, err := st.head.Confirmed(by)
	if err == nil {
		err = sign.mayFollow(st)
	}
	if err != nil {
		return nil, nil, err
	}
	reports, err := reports(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	hosts := st.hosts()
	for _, name := range without.Hosts {
		if !slices.Contains(hosts, name) {
			return nil, nil, fmt.Errorf("there is no host %q: weir node list", name)
		}
	}
	var silent []string
	for _, name := range hosts {
		if r, ok := reports[name]; ok && r.Enforced == st.head.Number && !r.Connected &&
			!slices.Contains(without.Hosts, name) {
			silent = append(silent, name)
		}
	}
	if len(silent) > 0 && !without.All {
		return nil, nil, errNoReport{silent}
	}
	if err := write(ctx, s, &next, st.at[:1], nil, sign.Key); err != nil {
		return nil, nil, err
	}
	return &next, hosts, nil
}

// Revert ends the trial of a version now: that before it takes its place, with the signature that
// it got when the trial began.
func Revert(ctx context.Context, s store.Store) (*cluster.Head, []string, error) {
	for {
		st, err := read(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		if st.head.Trial == nil {
			return nil, nil, errors.New("no version is on trial; nothing to go back from")
		}
		next := &st.head.Trial.Revert
		if err := write(ctx, s, next, st.at[:1], nil, nil); err == nil {
			return next, st.hosts(), nil
		} else if !errors.Is(err, store.ErrConflict) {
			return nil, nil, err
		}
	}
}
