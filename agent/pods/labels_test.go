package pods

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/cluster"
)

// tableStore keeps tables as engines do, and fails on demand.
type tableStore struct {
	tables  map[string]map[netip.Prefix]bool
	refuses int // this call from now on is refused; 0: none
	until   int // and those up to this one
	calls   int
}

var errNoSpace = errors.New("no space")

func (s *tableStore) call() error {
	s.calls++
	if s.refuses == s.calls || s.refuses < s.calls && s.calls <= s.until {
		return errNoSpace
	}
	return nil
}

func (s *tableStore) SetTable(name string, entries []rule.TableEntry) error {
	if err := s.call(); err != nil {
		return err
	}
	s.tables[name] = map[netip.Prefix]bool{}
	for _, e := range entries {
		s.tables[name][e.Prefix] = true
	}
	return nil
}

func (s *tableStore) AddTable(name string, e rule.TableEntry) error {
	if err := s.call(); err != nil {
		return err
	}
	s.tables[name][e.Prefix] = true
	return nil
}

func (s *tableStore) DeleteTable(name string, p netip.Prefix) error {
	if err := s.call(); err != nil {
		return err
	}
	if !s.tables[name][p] {
		return errors.New("not there")
	}
	delete(s.tables[name], p)
	return nil
}

func (s *tableStore) LabelsWithoutPlace([]string, int) ([]string, error) { return nil, nil }

func (s *tableStore) members(table string) string {
	return fmt.Sprint(slices.SortedFunc(maps.Keys(s.tables[table]), netip.Prefix.Compare))
}

func labelled(key, addr string, labels ...string) pod.Pod {
	p := pod.Pod{Key: key}
	p.Addrs = []netip.Addr{netip.MustParseAddr(addr)}
	p.Labels = map[string]string{}
	for _, l := range labels {
		p.Labels[l] = "x"
	}
	return p
}

// TestLabelsAreSets: a pod that comes twice and goes once is gone, and one that has another's
// address keeps it in the table.
func TestLabelsAreSets(t *testing.T) {
	s := &tableStore{tables: map[string]map[netip.Prefix]bool{
		"a=x": {netip.MustParsePrefix("10.88.0.9/32"): true}}}
	l := newLabels(s, func() {})
	if err := errors.Join(l.begin(), l.attached(labelled("p", "10.88.0.2", "a")),
		l.attached(labelled("p", "10.88.0.2", "a"))); err != nil {
		t.Fatal(err)
	}
	if got := s.members("a=x"); got != "[10.88.0.2/32]" { // and not what a run before left
		t.Errorf("members %s", got)
	}
	if err := errors.Join(l.detached(labelled("p", "10.88.0.2", "a")),
		l.detached(labelled("p", "10.88.0.2", "a"))); err != nil {
		t.Fatal(err)
	}
	if got := s.members("a=x"); got != "[]" {
		t.Errorf("after the pod went: %s", got)
	}
	if err := errors.Join(l.attached(labelled("p", "10.88.0.2", "a")),
		l.attached(labelled("q", "10.88.0.2", "a")), l.detached(labelled("p", "10.88.0.2",
			"a"))); err != nil {
		t.Fatal(err)
	}
	if got := s.members("a=x"); got != "[10.88.0.2/32]" ||
		!l.has("a=x", netip.MustParseAddr("10.88.0.2")) {
		t.Errorf("the other pod's: %s", got)
	}
}

// TestLabelsThatFail: whichever call the engine refuses, once the pod has gone no table has it.
func TestLabelsThatFail(t *testing.T) {
	for n := 1; ; n++ {
		s := &tableStore{tables: map[string]map[netip.Prefix]bool{}, refuses: n}
		l := newLabels(s, func() {})
		if err := l.begin(); err != nil {
			t.Fatal(err)
		}
		p := labelled("p", "10.88.0.2", "a", "b", "c")
		came := l.attached(p)
		went := l.detached(p)
		if went != nil { // it is tried again
			went = l.detached(p)
		}
		if went != nil {
			t.Errorf("refusal %d: %v", n, went)
		}
		for table := range s.tables {
			if got := s.members(table); got != "[]" {
				t.Errorf("refusal %d (%v): %s has %s", n, came, table, got)
			}
		}
		if s.calls < n {
			if n < 9 {
				t.Errorf("only %d calls", s.calls)
			}
			return
		}
	}
}

// TestLabelsBegin: what came before the beginning is handed over whole and once, tables of pods
// that went before it as empty ones.
func TestLabelsBegin(t *testing.T) {
	old := map[netip.Prefix]bool{netip.MustParsePrefix("10.88.0.9/32"): true}
	s := &tableStore{tables: map[string]map[netip.Prefix]bool{"a=x": maps.Clone(old),
		"b=x": maps.Clone(old)}}
	l := newLabels(s, func() {})
	err := errors.Join(l.attached(labelled("p", "10.88.0.2", "a")),
		l.attached(labelled("q", "10.88.0.3", "a")), l.detached(labelled("dead", "10.88.0.9", "b")))
	if err != nil || s.calls != 0 {
		t.Fatalf("%v, %d calls before the beginning", err, s.calls)
	}
	if err := l.begin(); err != nil || s.calls != 2 {
		t.Errorf("%v, %d calls, want one for each table", err, s.calls)
	}
	if a, b := s.members("a=x"), s.members("b=x"); a != "[10.88.0.2/32 10.88.0.3/32]" || b != "[]" {
		t.Errorf("a has %s, b has %s", a, b)
	}
}

// webTable is labels whose table app=web has the addresses of pods of this host and of others.
type webTable struct {
	*labels
	engine *tableStore
	t      *testing.T
}

// addresses wants these addresses in the table.
func (b *webTable) addresses(when string, want ...string) {
	b.t.Helper()
	var got []string
	for p := range b.engine.tables["app=web"] {
		got = append(got, p.Addr().String())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.t.Errorf("%s: %v, want %v", when, got, want)
	}
}

// others adds addresses of pods of other hosts, or removes them.
func (b *webTable) others(add bool, addrs ...string) {
	b.t.Helper()
	changes := map[cluster.Label]bool{}
	for _, a := range addrs {
		changes[cluster.Label{Table: "app=web", Addr: netip.MustParseAddr(a)}] = add
	}
	if err := b.setOthers(changes); err != nil {
		b.t.Fatal(err)
	}
}

// fullTableStore is a tableStore that has no place for one table. With keeps it has one for own
// pods.
type fullTableStore struct {
	*tableStore
	refused string
	keeps   bool
}

func (s *fullTableStore) LabelsWithoutPlace(tables []string, _ int) ([]string, error) {
	if s.keeps && s.tables[s.refused] == nil && slices.Contains(tables, s.refused) {
		return []string{s.refused}, nil
	}
	return nil, nil
}

func (s *fullTableStore) SetTable(name string, entries []rule.TableEntry) error {
	if name == s.refused && !s.keeps {
		return errNoSpace
	}
	return s.tableStore.SetTable(name, entries)
}

func (s *fullTableStore) AddTable(name string, e rule.TableEntry) error {
	if s.tables[name] == nil { // as engines do
		return s.SetTable(name, []rule.TableEntry{e})
	}
	return s.tableStore.AddTable(name, e)
}

// TestOnlyWhatFailsIsRepeated: a table that the engine does not take leaves its own changes to be
// made again, and not those of others.
func TestOnlyWhatFailsIsRepeated(t *testing.T) {
	s := &fullTableStore{&tableStore{tables: map[string]map[netip.Prefix]bool{}}, "job=1", false}
	l := newLabels(s, func() {})
	address := netip.MustParseAddr("10.0.2.1")
	refused := cluster.Label{Table: "job=1", Addr: address}
	changes := map[cluster.Label]bool{refused: true, {Table: "app=web", Addr: address}: true,
		{Table: "app=db", Addr: address}: true}
	if err := l.setOthers(changes); !errors.Is(err, errNoSpace) {
		t.Error(err)
	}
	if !maps.Equal(changes, map[cluster.Label]bool{refused: true}) {
		t.Errorf("to be made again: %v", changes)
	}
	s.refused = ""
	if err := l.setOthers(changes); err != nil || len(changes) > 0 {
		t.Errorf("%v, to be made again: %v", err, changes)
	}
	if len(s.tables) != 3 {
		t.Errorf("tables %v", s.tables)
	}
}

// TestPlacesOfOwnLabels: the engine has no place for a label of other hosts but those that it keeps
// for the host's own pods. The label comes with the first own pod that has it, or with a rule.
func TestPlacesOfOwnLabels(t *testing.T) {
	s := &fullTableStore{&tableStore{tables: map[string]map[netip.Prefix]bool{}}, "job=x", true}
	l := newLabels(s, func() {})
	others := func(table string, changes map[string]bool) {
		t.Helper()
		all := map[cluster.Label]bool{}
		for a, is := range changes {
			all[cluster.Label{Table: table, Addr: netip.MustParseAddr(a)}] = is
		}
		if err := l.setOthers(all); err != nil || len(all) > 0 {
			t.Errorf("%v; left to do: %v", err, all)
		}
	}
	expect := func(when, table, want string) {
		t.Helper()
		if got := s.members(table); got != want {
			t.Errorf("%s: members %s, want %s", when, got, want)
		}
	}
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	others("job=x", map[string]bool{"10.0.2.1": true, "10.0.2.2": true})
	others("job=x", map[string]bool{"10.0.2.1": false})
	if s.calls > 0 || !l.has("job=x", netip.MustParseAddr("10.0.2.2")) {
		t.Errorf("%d calls", s.calls)
	}
	if err := l.attached(labelled("p", "10.88.0.2", "job")); err != nil {
		t.Fatal(err)
	}
	expect("with an own pod", "job=x", "[10.0.2.2/32 10.88.0.2/32]")
	others("job=x", map[string]bool{"10.0.2.1": true, "10.0.2.2": false})
	expect("afterwards", "job=x", "[10.0.2.1/32 10.88.0.2/32]")
	s.refused = "env=x"
	others("env=x", map[string]bool{"10.0.2.1": true})
	if err := l.place([]string{"job=x", "env=x"}); err != nil {
		t.Error(err)
	}
	expect("before a rule that names it", "env=x", "[10.0.2.1/32]")
	s.refused = "tier=x"
	others("tier=x", map[string]bool{"10.0.2.1": true})
	s.refused = "" // there is a place again: all of them come
	others("tier=x", map[string]bool{"10.0.2.2": true})
	expect("with a place", "tier=x", "[10.0.2.1/32 10.0.2.2/32]")
	s.refused = "zone=x"
	others("zone=x", map[string]bool{"10.0.2.1": true})
	calls := s.calls
	others("zone=x", map[string]bool{"10.0.2.1": false})
	if s.calls > calls || len(l.unplaced) > 0 {
		t.Errorf("%d calls for what the engine never had; without a place: %v", s.calls-calls,
			l.unplaced)
	}
}

// TestOtherHostsPods: addresses of pods of other hosts are in the tables beside those of this
// host's pods, whatever comes first, and single changes are single calls.
func TestOtherHostsPods(t *testing.T) {
	changed := 0
	s := &tableStore{tables: map[string]map[netip.Prefix]bool{}}
	l := newLabels(s, func() { changed++ })
	b := &webTable{&l, s, t}
	b.others(true, "10.0.2.1", "10.0.2.2")
	b.addresses("from the disk", "10.0.2.1", "10.0.2.2")
	if s.calls != 1 {
		t.Errorf("%d calls for a whole table", s.calls)
	}
	recorded := rule.TableEntry{Prefix: netip.MustParsePrefix("10.0.1.1/32")}
	if err := b.record(map[string][]rule.TableEntry{"app=web": {recorded}}); err != nil {
		t.Fatal(err)
	}
	b.addresses("with recorded pods", "10.0.1.1", "10.0.2.1", "10.0.2.2")
	b.others(true, "10.0.3.1", "10.0.3.2", "10.0.3.3", "10.0.3.4")
	b.addresses("recorded pods stay", "10.0.1.1", "10.0.2.1", "10.0.2.2", "10.0.3.1", "10.0.3.2",
		"10.0.3.3", "10.0.3.4")
	b.others(false, "10.0.3.1", "10.0.3.2", "10.0.3.3", "10.0.3.4")
	own := pod.Pod{Key: "c/eth0",
		Spec: pod.Spec{Addrs: []netip.Addr{netip.MustParseAddr("10.0.1.1")},
			Labels: map[string]string{"app": "web"}}}
	if err := errors.Join(b.attached(own), b.begin()); err != nil {
		t.Fatal(err)
	}
	b.addresses("with an own pod", "10.0.1.1", "10.0.2.1", "10.0.2.2")
	calls := s.calls
	b.others(true, "10.0.2.3")
	b.others(false, "10.0.2.1")
	if s.calls != calls+2 {
		t.Errorf("%d calls for two changes", s.calls-calls)
	}
	b.addresses("one came, one went", "10.0.1.1", "10.0.2.2", "10.0.2.3")
	b.others(false, "10.0.2.1") // it is not there: the whole table says what is right
	b.addresses("again", "10.0.1.1", "10.0.2.2", "10.0.2.3")
	if err := b.detached(own); err != nil {
		t.Fatal(err)
	}
	b.addresses("the own pod went", "10.0.2.2", "10.0.2.3")
	if changed != 2 || len(b.own) != 0 {
		t.Errorf("%d changes of own pods, %d left", changed, len(b.own))
	}
	s.tables["app=old"] = map[netip.Prefix]bool{netip.MustParsePrefix("10.0.9.9/32"): true}
	if err := errors.Join(b.clear([]string{"app=old", "app=web", "plain"}),
		b.clear([]string{"app=old"})); err != nil {
		t.Fatal(err)
	}
	if _, touched := s.tables["plain"]; len(s.tables["app=old"]) > 0 || touched {
		t.Errorf("tables of an earlier run: %v", s.tables)
	}
	b.addresses("a table that is known stays", "10.0.2.2", "10.0.2.3")
	s.refuses = s.calls + 1
	b.others(false, "10.0.2.2") // one refused call is not an error
	b.addresses("the whole table was handed over", "10.0.2.3")
}

// TestLabelsAreForgotten: of pods that came and went, each with a label of its own, few tables are
// kept, of this host's pods and of others. One that is forgotten works again as it did.
func TestLabelsAreForgotten(t *testing.T) {
	const many = 1000
	s := &tableStore{tables: map[string]map[netip.Prefix]bool{}}
	l := newLabels(s, func() {})
	if err := errors.Join(l.begin(), l.attached(labelled("stays", "10.88.0.9",
		"kept"))); err != nil {
		t.Fatal(err)
	}
	for i := range many {
		p := labelled("p", "10.88.0.2", fmt.Sprint("run", i))
		other := cluster.Label{Table: fmt.Sprintf("job%d=x", i),
			Addr: netip.MustParseAddr("10.0.2.1")}
		if err := errors.Join(l.attached(p), l.detached(p),
			l.setOthers(map[cluster.Label]bool{other: true}),
			l.setOthers(map[cluster.Label]bool{other: false})); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(l.tables) + len(l.others); n > maxEmptied+1 || n != len(l.all()) {
		t.Errorf("%d tables are kept, %d shown, of %d that are empty", n, len(l.all()), 2*many)
	}
	for name := range s.tables {
		if got := s.members(name); name != "kept=x" && got != "[]" {
			t.Errorf("%s has %s", name, got)
		}
	}
	again := labelled("p", "10.88.0.2", "run0", "kept")
	if err := l.attached(again); err != nil {
		t.Fatal(err)
	}
	if got := s.members("run0=x") + s.members("kept=x"); got !=
		"[10.88.0.2/32][10.88.0.2/32 10.88.0.9/32]" {
		t.Errorf("after a pod came again: %s", got)
	}
	if err := l.detached(again); err != nil {
		t.Fatal(err)
	}
	if got := s.members("run0=x") + s.members("kept=x"); got != "[][10.88.0.9/32]" {
		t.Errorf("after it went again: %s", got)
	}
}
