package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"time"
	"unicode"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
)

// version is a version of the rules as far as it concerns this host.
type version struct {
	head    *cluster.Head                    // nil: none
	digests map[cluster.Scope]cluster.Digest // of the host's scopes
	strict  bool
	trial   bool // a timer of the part that enforces it runs
}

// number is that of the head, or 0.
func (v version) number() (n cluster.Number) {
	if v.head != nil {
		n = v.head.Number
	}
	return n
}

// same reports whether two versions have the same rules for this host.
func (v version) same(other version) bool {
	return v.head != nil && other.head != nil && v.strict == other.strict &&
		maps.Equal(v.digests, other.digests)
}

// versionOf returns what a head is for a host. A cluster without any rules is open, as a host
// without any is.
func versionOf(h *cluster.Head, host cluster.Host) version {
	v := version{head: h, digests: map[cluster.Scope]cluster.Digest{}, strict: len(h.Scopes) > 0}
	for _, scope := range host.Scopes() {
		if digest, ok := h.Scopes[scope]; ok {
			v.digests[scope] = digest
		}
	}
	return v
}

// hostLocked returns this host, with the roles that its certificate has.
func (s *Service) hostLocked() cluster.Host {
	if n := s.desired.Node(s.config.Name); n != nil {
		return n.Host()
	}
	return cluster.Host{Name: s.config.Name}
}

// LastConfirmed returns the last confirmed version, as the disk has it; false if there is none, or
// a text of it is missing.
func (s *Service) LastConfirmed() (Load, bool) {
	s.mu.Lock()
	h, host, texts := s.local.Confirmed, s.hostLocked(), maps.Clone(s.texts)
	s.mu.Unlock()
	if h == nil {
		return Load{}, false
	}
	v := versionOf(h, host)
	l, err := s.build(v, texts)
	if err != nil {
		s.config.Problems.Set(aboutRules, fmt.Sprintf("version %v cannot be read from the disk: %v",
			h.Number, err), "the rules saved before are in force until the store answers")
		return Load{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.force, s.settled = v, v
	s.report.Enforced = h.Number
	return l, true
}

// build parses and merges the rules of a version. A scope may have 32 MiB of rules: while they are
// parsed, steps and status do not wait.
func (s *Service) build(v version, texts map[cluster.Digest]string) (Load, error) {
	rules := cluster.Version{}
	for scope, digest := range v.digests {
		t, ok := texts[digest]
		if !ok {
			return Load{}, fmt.Errorf("the rules of scope %s: %w", scope, fs.ErrNotExist)
		}
		var err error
		if rules[scope], err = s.config.Parts.Parse(string(scope), t); err != nil {
			return Load{}, refusal{err}
		}
	}
	s.mu.Lock()
	host := s.hostLocked()
	s.mu.Unlock()
	set, err := rules.For(host)
	if err != nil {
		return Load{}, refusal{err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range set.Tables {
		if s.desired.HasTable(name) {
			return Load{}, refusal{fmt.Errorf("table %s is a shared one, and this version defines "+
				"it", name)}
		}
	}
	return Load{Set: set, Strict: v.strict,
		Source: fmt.Sprintf("version %v of the cluster", v.head.Number)}, nil
}

// refusal is a reason to refuse a version that another try does not change.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// loadHeads puts each new version in force.
func (s *Service) loadHeads(ctx context.Context) {
	wake(s.heads) // the copy on the disk may have one
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.heads:
		}
		err := s.loadHead(ctx)
		if err == nil {
			failures = 0
			continue
		}
		failures++
		s.config.Log.Warn("a version of the rules is not in force yet", "err", err)
		if !problem.Sleep(ctx, client.Pause(failures, err, s.config.Random())) {
			return
		}
		wake(s.heads)
	}
}

// loadHead puts the newest version in force if it is not. An error means that it has to be tried
// again.
func (s *Service) loadHead(ctx context.Context) error {
	s.mu.Lock()
	h := s.desired.Head()
	if h == nil || h.Trial != nil && !s.heard {
		s.mu.Unlock()
		return nil
	}
	next, now := versionOf(h, s.hostLocked()), s.force
	refused := s.refused
	s.mu.Unlock()
	switch {
	case refused.head != nil && refused.number() == h.Number && refused.same(next):
		return nil
	case next.number() == now.number() && next.same(now):
		return nil
	case next.same(now) && now.trial && h.Trial == nil:
		if err := s.config.Parts.Confirm(); err != nil {
			// Its trial has ended, perhaps before entered noted that it began: the rules before it
			// are in force.
			return s.replace(ctx, next)
		}
	case next.same(now) && !(now.trial && h.Trial != nil): // a new trial has a new timer
		next.trial = now.trial
	default:
		return s.replace(ctx, next)
	}
	s.entered(ctx, next)
	return nil
}

// replace puts a version in force in place of another one, or refuses it.
func (s *Service) replace(ctx context.Context, next version) error {
	texts := map[cluster.Digest]string{}
	for _, digest := range next.digests {
		text, err := s.fetch(ctx, digest)
		if errors.Is(err, cluster.ErrDocument) { // the store answers, and does not have it
			err = fmt.Errorf("the store does not have the rules of a scope; load them again: %w",
				err)
			s.refuse(next, err)
		}
		if err != nil {
			s.tidyTexts()
			return err
		}
		texts[digest] = text
	}
	l, err := s.build(next, texts)
	if err == nil {
		err = s.checkConnectivity(l, next.head)
	}
	if err == nil {
		if t := next.head.Trial; t != nil {
			next.trial = true
			l.Trial, l.Reverted = t.Duration(), func() { s.reverted(next) }
		}
		err = s.config.Parts.Enforce(l)
	}
	if err != nil {
		s.refuse(next, err)
		s.tidyTexts()
		var permanent refusal
		if errors.As(err, &permanent) {
			return nil
		}
		return err
	}
	s.entered(ctx, next)
	return nil
}

// fetch returns a text, which the host has or the store.
func (s *Service) fetch(ctx context.Context, digest cluster.Digest) (string, error) {
	s.mu.Lock()
	text, ok := s.texts[digest]
	s.mu.Unlock()
	if ok {
		return text, nil
	}
	parts, err := s.config.Client.Read(ctx, fmt.Sprintf("%s%v/", cluster.TextTree, digest), 0)
	if err != nil {
		return "", err
	}
	if text, err = cluster.DecodeText(digest, parts.Entries); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[digest] = text
	return text, nil
}

// entered notes that a version is in force. The report says so of a confirmed one when it is on the
// disk, so that what is answered as enforced is also what a start enforces.
func (s *Service) entered(ctx context.Context, v version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = version{}
	s.force = v
	if !v.trial {
		s.settled = v
	}
	if v.head.Trial == nil {
		s.local.Confirmed = v.head
		s.tidyTextsLocked()
		s.changedLocked()
		s.unwritten.answer = s.unwritten.local
	}
	s.config.Problems.Solved(aboutRules)
	s.config.Log.Info("version in force", "version", v.number(), "trial", v.trial)
	s.report.Enforced, s.report.Refused, s.report.Why = v.number(), nil, ""
	s.report.Connected = false
	wake(s.news)
	if t := v.head.Trial; t != nil {
		go s.halfway(ctx, v, t.Duration()/2)
	}
}

// halfway reports that the host is still connected. That the report arrives is the proof.
func (s *Service) halfway(ctx context.Context, v version, half time.Duration) {
	if !problem.Sleep(ctx, half) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.force.number() == v.number() {
		s.report.Connected = true
		wake(s.news)
	}
}

// reverted notes that a trial ended, and that the rules before it are back.
func (s *Service) reverted(v version) {
	s.mu.Lock()
	if s.force.number() != v.number() {
		s.mu.Unlock()
		return
	}
	s.force = s.settled
	s.mu.Unlock()
	s.refuse(v, errors.New("not confirmed in time: the previous rules are in force again"))
}

// refuse notes that a version is not in force.
func (s *Service) refuse(v version, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var permanent refusal
	if errors.As(err, &permanent) || v.trial {
		s.refused = v
	}
	number := v.number()
	s.report.Enforced, s.report.Refused, s.report.Why = s.force.number(), &number, short(err)
	s.report.Connected = false
	s.config.Problems.Set(aboutRules, fmt.Sprintf("version %v is not in force: %v", number, err),
		"load rules that this host can use; weir node list shows what each host enforces")
	wake(s.news)
}

// short is the text of an error as a report takes it: one line of characters that can be seen.
func short(err error) string {
	text := err.Error()
	text = strings.ToValidUTF8(text[:min(len(text), 1000)], "")
	text = strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, text)
	return cmp.Or(text, "unknown")
}

func (s *Service) tidyTexts() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tidyTextsLocked()
}

// tidyTextsLocked removes texts that neither a start nor the end of a trial needs. Only the loader
// calls it: it has no other texts then.
func (s *Service) tidyTextsLocked() {
	keep := map[cluster.Digest]bool{}
	for _, h := range []*cluster.Head{s.local.Confirmed, s.settled.head, s.force.head,
		s.desired.Head()} {
		if h == nil {
			continue
		}
		for _, digest := range h.Scopes {
			keep[digest] = true
		}
	}
	maps.DeleteFunc(s.texts, func(d cluster.Digest, _ string) bool { return !keep[d] })
}
