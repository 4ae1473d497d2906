package cluster

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
)

// maxWrites is how many keys one transaction of a host writes.
const maxWrites = 100

// PodsChanged reports that the host's pods changed. They are written after a short delay, with
// other changes. It does not wait.
func (s *Service) PodsChanged() { wake(s.news) }

// SetEndpoints sets the addresses at which the host's tunnel can be reached.
func (s *Service) SetEndpoints(addrs []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addrs = slices.Clone(addrs)
	wake(s.news)
}

// readOwn takes the host's own values from the copy.
func (s *Service) readOwn() {
	for e := range s.guarded.Stored().All() {
		if s.isOwn(e.Key) {
			s.own.copied[e.Key] = e.Value
		}
	}
	s.noteSequence(s.own.value(cluster.EndpointKey + s.config.Name))
}

func (s *Service) isOwn(key string) bool {
	return key == cluster.EndpointKey+s.config.Name ||
		strings.HasPrefix(key, cluster.PodsTree+s.config.Name+"/")
}

// noteOwn notes what the store has of this host: it may have been put back.
func (s *Service) noteOwn(b store.Batch, putBack bool) {
	var changes []store.Change
	for _, ch := range b.Changes {
		if s.isOwn(ch.Key) {
			changes = append(changes, ch)
			s.noteSequence(ch.Value)
		}
	}
	if (putBack || len(changes) > 0 || len(s.own.pending) > 0) &&
		s.own.step(changes, b.Revision, putBack) {
		wake(s.news)
	}
}

// noteSequence remembers the highest sequence number: others accept no lower one.
func (s *Service) noteSequence(value []byte) {
	if e, signed := s.signed(value); signed {
		s.sequence = max(s.sequence, e.Sequence)
	}
}

// signed reads endpoints, and reports whether this host has signed them by its certificate. Who
// controls the store can write others there: with the highest number that there is, this host would
// sign the last endpoints that others ever accept.
func (s *Service) signed(value []byte) (e cluster.Endpoints, signed bool) {
	e, err := cluster.Decode[cluster.Endpoints](value)
	if err != nil {
		return e, false
	}
	own := cluster.Node{Name: s.config.Name, Serial: s.config.Serial,
		TLS: cluster.Key(s.config.Key.Public().(ed25519.PublicKey))}
	return e, e.Verify(&own) == nil
}

// publish writes what the host has to say, gathered, until the context ends. The first time it asks
// the store for what it has.
func (s *Service) publish(ctx context.Context) {
	known := false
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-s.news:
		}
		if !problem.Sleep(ctx, gather) {
			return
		}
		err := error(nil)
		if !known {
			err = s.readStored(ctx)
		}
		if err == nil {
			known = true
			err = s.write(ctx)
		}
		if err == nil {
			failures = 0
			continue
		}
		failures++
		s.config.Log.Info("cannot write own pods, endpoints and report to the store yet",
			"err", err)
		if !problem.Sleep(ctx, client.Pause(failures, err, s.config.Random())) {
			return
		}
		wake(s.news)
	}
}

// readStored reads what the store has of this host.
func (s *Service) readStored(ctx context.Context) error {
	for _, name := range []string{cluster.EndpointKey + s.config.Name,
		cluster.PodsTree + s.config.Name + "/"} {
		s.mu.Lock()
		putBack := s.own.putBack
		s.mu.Unlock()
		read, err := s.config.Client.Read(ctx, name, 0)
		if err != nil {
			return err
		}
		s.committed(read.Entries, read.Revision, putBack)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteSequence(s.own.value(cluster.EndpointKey + s.config.Name))
	return nil
}

// committed notes what the store has of this host since a revision.
func (s *Service) committed(all []store.Entry, revision int64, putBack int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kept []store.Entry
	for _, e := range all {
		if s.isOwn(e.Key) {
			kept = append(kept, e)
		} else if putBack == s.own.putBack {
			s.own.report = e.Value
		}
	}
	s.own.committed(kept, revision, s.guarded.Stored().Revision, putBack)
}

// write commits what differs from what the store has.
func (s *Service) write(ctx context.Context) error {
	for {
		pods, known := s.config.Parts.Pods()
		s.mu.Lock()
		puts, err := s.differences(pods, known)
		putBack := s.own.putBack
		s.mu.Unlock()
		if len(puts) == 0 {
			return err
		}
		puts = first(puts)
		revision, err := s.config.Client.Commit(ctx, store.Txn{Put: puts})
		if err != nil {
			return err
		}
		s.committed(puts, revision, putBack)
	}
}

// first returns as many as fit into one transaction.
func first(puts []store.Entry) []store.Entry {
	size := 0
	for n, p := range puts {
		if size += len(p.Key) + len(p.Value); n == maxWrites || n > 0 && size > store.MaxBytes {
			return puts[:n]
		}
	}
	return puts
}

// differences returns what has to be written. What cannot be is left out, and does not keep the
// rest out.
func (s *Service) differences(pods []cluster.Pod, known bool) (puts []store.Entry, err error) {
	if n := s.desired.Node(s.config.Name); n != nil && known {
		allowed := make([]cluster.Pod, 0, len(pods))
		for i := range pods {
			if p, ok := n.AllowedPod(&pods[i]); ok {
				allowed = append(allowed, p)
			}
		}
		puts, err = cluster.PodChunkPuts(s.config.Name, s.own.values(), allowed)
	}
	if s.addrs != nil {
		e, bad := s.endpoints()
		puts, err = append(puts, e...), errors.Join(err, bad)
	}
	s.report.Held, s.report.Claims, s.report.Weir = len(s.guarded.Held()), s.claims,
		s.config.Version
	value, bad := cluster.Encode(&s.report)
	if bad != nil {
		return puts, errors.Join(err, fmt.Errorf("the report: %w", bad))
	}
	answered := s.unwritten.tried >= s.unwritten.answer
	if answered && !bytes.Equal(s.own.report, value) {
		puts = append(puts, store.Entry{Key: cluster.ReportTree + s.config.Name, Value: value})
	}
	return puts, err
}

// endpoints returns the entry of the host's endpoints, signed with the next sequence number, unless
// the store has them.
func (s *Service) endpoints() ([]store.Entry, error) {
	key := cluster.EndpointKey + s.config.Name
	have, signed := s.signed(s.own.value(key))
	if signed && have.Sequence == s.sequence && slices.Equal(have.Addrs, s.addrs) {
		return nil, nil
	}
	next := cluster.Endpoints{Serial: s.config.Serial, Sequence: s.sequence + 1, Addrs: s.addrs}
	if err := next.Sign(s.config.Name, s.config.Key); err != nil {
		return nil, err
	}
	value, err := cluster.Encode(&next)
	if err != nil {
		return nil, fmt.Errorf("the endpoints: %w", err)
	}
	s.sequence++
	return []store.Entry{{Key: key, Value: value}}, nil
}
