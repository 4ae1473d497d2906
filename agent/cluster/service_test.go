package cluster

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/storetest"
)

const silence = 200 * time.Millisecond

// parts record what a host enforces.
type parts struct {
	mu      sync.Mutex
	rules   string // in force
	before  string // while a trial runs
	onTrial bool
	timer   *time.Timer
	labels  map[cluster.Label]bool
	shared  map[cluster.SharedMember]uint32
	hosts   map[string]cluster.HostChange
	history []string // what was put in force
	loads   int
	copied  int
	calls   int    // of tables: single changes
	cutsOff string // rules that have this text would cut the host off
	entered func(Load)
	parsing func(text string) // before it is parsed
	failing error
	pods    []cluster.Pod
}

func newParts() *parts {
	return &parts{labels: map[cluster.Label]bool{}, shared: map[cluster.SharedMember]uint32{},
		hosts: map[string]cluster.HostChange{}}
}

// textOf is what a version is about, in tests.
func textOf(set *rule.Ruleset) string {
	var b strings.Builder
	for _, r := range set.Rules {
		fmt.Fprintf(&b, "%d %s;", r.Number, r.Text())
	}
	return b.String()
}

func (p *parts) parts() Parts {
	return Parts{Parse: func(name, text string) (*rule.Ruleset, error) {
		if p.parsing != nil {
			p.parsing(text)
		}
		return rule.ParseFile(name, text, new(rule.Names))
	}, Enforce: p.enforce, Confirm: p.confirm,
		CheckConnectivity: func(l Load, _ []api.RequiredConn, _ *api.Session) (string, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.cutsOff != "" && strings.Contains(textOf(l.Set), p.cutsOff) {
				return "rule 1200 would cut this host off", nil
			}
			return "", nil
		},
		Labels: func(all map[cluster.Label]bool) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.failing != nil {
				return p.failing
			}
			for l, is := range all {
				p.calls++
				if p.labels[l] = is; !is {
					delete(p.labels, l)
				}
			}
			return nil
		},
		Shared: func(all map[cluster.SharedMember]*uint32) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			for m, v := range all {
				p.calls++
				if delete(p.shared, m); v != nil {
					p.shared[m] = *v
				}
			}
			return nil
		},
		Host: func(h cluster.HostChange) error {
			p.mu.Lock()
			defer p.mu.Unlock()
			if p.hosts[h.Name] = h; h.Node == nil {
				delete(p.hosts, h.Name)
			}
			return nil
		},
		Peers: func() []string {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Collect(maps.Keys(p.hosts))
		},
		Pods: func() ([]cluster.Pod, bool) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return slices.Clone(p.pods), true
		},
		FirstCopy: func() error {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.copied++
			return nil
		}}
}

func (p *parts) enforce(l Load) error {
	if p.entered != nil { // before the Service hears of it
		defer p.entered(l)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loads++
	if p.onTrial {
		p.timer.Stop()
		p.rules, p.onTrial = p.before, false
	}
	if l.Trial > 0 {
		p.before, p.onTrial = p.rules, true
		var timer *time.Timer
		timer = time.AfterFunc(l.Trial, func() {
			p.mu.Lock()
			if !p.onTrial || p.timer != timer {
				p.mu.Unlock()
				return
			}
			p.rules, p.onTrial = p.before, false
			p.mu.Unlock()
			l.Reverted()
		})
		p.timer = timer
	}
	p.rules = textOf(l.Set)
	p.history = append(p.history, p.rules)
	return nil
}

func (p *parts) confirm() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.onTrial {
		return errors.New("no trial")
	}
	p.timer.Stop()
	p.onTrial = false
	return nil
}

func (p *parts) now() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules
}

// lab is a cluster with a model store.
type lab struct {
	t     testing.TB
	model *storetest.Model
	id    cluster.Serial
	ca    ed25519.PrivateKey
	head  cluster.Head
	epoch uint64
	// admins is the list of the invitations; none unless a test sets it.
	admins cluster.KeyList
}

func keyOf(name string) ed25519.PrivateKey {
	seed := cluster.TextDigest(name)
	return ed25519.NewKeyFromSeed(seed[:])
}

func newLab(t testing.TB) *lab { return newLabOf(t, cluster.Serial{1}) }

func newLabOf(t testing.TB, id cluster.Serial) *lab {
	l := &lab{t: t, model: storetest.NewModel(silence), id: id, ca: keyOf("ca"), epoch: 1}
	l.head = cluster.Head{Number: cluster.Number{Epoch: 1}, By: "test"}
	l.put(cluster.IdentityKey, &cluster.Identity{ID: id, Epoch: 1})
	return l
}

func (l *lab) entry(key string, d cluster.Document) store.Entry {
	l.t.Helper()
	value, err := cluster.Encode(d)
	if err != nil {
		l.t.Fatal(err)
	}
	return store.Entry{Key: key, Value: value}
}

func (l *lab) put(key string, d cluster.Document) {
	l.t.Helper()
	l.commit(store.Txn{Put: []store.Entry{l.entry(key, d)}})
}

func (l *lab) commit(txn store.Txn) {
	l.t.Helper()
	if _, err := l.model.Commit(l.t.Context(), txn); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) trust() cluster.Trust {
	return cluster.Trust{Cluster: l.id, Epoch: 1, Admins: l.admins,
		CA: []cluster.Key{cluster.Key(l.ca.Public().(ed25519.PublicKey))}}
}

// join writes a certificate.
func (l *lab) join(name string, serial byte, ranges string, roles ...string) *cluster.Node {
	l.t.Helper()
	n := l.node(name, serial, ranges, roles...)
	l.put(cluster.NodeTree+name, n)
	return n
}

func (l *lab) node(name string, serial byte, ranges string, roles ...string) *cluster.Node {
	l.t.Helper()
	n := &cluster.Node{Name: name, Serial: cluster.Serial{serial, 1}, Roles: roles,
		TLS:       cluster.Key(keyOf(name).Public().(ed25519.PublicKey)),
		WireGuard: cluster.Key(cluster.TextDigest("wg " + name)),
		Ranges:    []netip.Prefix{netip.MustParsePrefix(ranges)}, Labels: []string{"app"}}
	if err := n.Sign(l.ca); err != nil {
		l.t.Fatal(err)
	}
	return n
}

// load writes a version with one text for all hosts, and returns what it is in force.
func (l *lab) load(text string, try time.Duration) string {
	l.t.Helper()
	digest, texts, err := cluster.EncodeText(text)
	if err != nil {
		l.t.Fatal(err)
	}
	l.head = l.head.Next(map[cluster.Scope]cluster.Digest{cluster.All: digest}, "test", try)
	l.commit(store.Txn{Put: append(texts, l.entry(cluster.HeadKey, &l.head))})
	set, err := rule.ParseFile("all", text, new(rule.Names))
	if err != nil {
		l.t.Fatal(err)
	}
	return textOf(set)
}

// confirm confirms the version on trial.
func (l *lab) confirm() {
	l.t.Helper()
	h, err := l.head.Confirmed("test")
	if err != nil {
		l.t.Fatal(err)
	}
	l.head = h
	l.put(cluster.HeadKey, &l.head)
}

// running is a host that runs.
type running struct {
	*Service
	lab    *lab
	parts  *parts
	client *direct
	stop   func()
}

// start starts a host on a directory; what it enforces survives in p as it does in the kernel.
func (l *lab) start(name, dir string, serial byte, p *parts, awayFrom bool) *running {
	l.t.Helper()
	return l.startWith(name, dir, cluster.Serial{serial, 1}, p, awayFrom)
}

func (l *lab) startWith(name, dir string, serial cluster.Serial, p *parts,
	awayFrom bool) *running {
	l.t.Helper()
	// FillTables hands whole tables over: what an earlier run had in them does not count.
	p.mu.Lock()
	p.labels, p.shared = map[cluster.Label]bool{}, map[cluster.SharedMember]uint32{}
	p.mu.Unlock()
	r := &running{lab: l, parts: p, client: newDirect(l.model, name)}
	r.client.cut = awayFrom
	log := slog.New(slog.DiscardHandler)
	var err error
	r.Service, err = Open(Config{Name: name, Dir: dir, Trust: l.trust(), Key: keyOf(name),
		Serial: serial, Client: r.client, Parts: p.parts(),
		Stores: func() []netip.AddrPort { return nil }, Version: "test",
		Random: func() float64 { return 0.01 }, Log: log, Problems: &problem.List{Log: log}})
	if err != nil {
		l.t.Fatal(err)
	}
	r.FillTables()
	if first, ok := r.LastConfirmed(); ok {
		if err := p.enforce(first); err != nil {
			l.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := r.Close(); err != nil {
			l.t.Error(err)
		}
	})
	l.t.Cleanup(r.stop)
	return r
}

// SetPods has the host have these pods.
func (r *running) SetPods(pods []cluster.Pod) {
	r.parts.mu.Lock()
	r.parts.pods = pods
	r.parts.mu.Unlock()
	r.PodsChanged()
}

// reportOf returns the report of a host.
func (l *lab) reportOf(name string) (r cluster.Report) {
	l.t.Helper()
	s, err := l.model.Read(l.t.Context(), cluster.ReportTree+name, 0)
	if err != nil || len(s.Entries) == 0 {
		return r
	}
	if r, err = cluster.Decode[cluster.Report](s.Entries[0].Value); err != nil {
		l.t.Fatal(err)
	}
	return r
}
