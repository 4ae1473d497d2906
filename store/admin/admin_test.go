package admin

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/storetest"
)

// lab is a cluster of two hosts in a model, and what an administrator may do with it.
type lab struct {
	*testing.T
	model *storetest.Model
	admin store.Store
}

func newLab(t *testing.T) *lab {
	m := storetest.NewModel(time.Second)
	l := &lab{t, m, store.Limit(m, cluster.AdminGrants())}
	l.put(cluster.IdentityKey, &cluster.Identity{ID: cluster.Serial{1}, Epoch: 1})
	for i, name := range []string{"a", "b"} {
		n := &cluster.Node{Name: name, Serial: cluster.Serial{byte(i + 1)}, TLS: cluster.Key{1},
			WireGuard: cluster.Key{1}, Roles: []string{"r" + name},
			Signature: cluster.Signature{1}}
		l.put(cluster.NodeTree+name, n)
	}
	return l
}

func (l *lab) put(key string, d cluster.Document) {
	l.Helper()
	value, err := cluster.Encode(d)
	if err == nil {
		_, err = l.model.Commit(l.Context(),
			store.Txn{Put: []store.Entry{{Key: key, Value: value}}})
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) load(scope cluster.Scope, text string, try time.Duration) (*cluster.Head, error) {
	return l.loadScope(scope, Signer{}, text, try)
}

func (l *lab) report(name string, r cluster.Report) { l.put(cluster.ReportTree+name, &r) }

// TestLoad: a scope's text joins those of the others; what a host could not have is refused, and
// changes nothing.
func TestLoad(t *testing.T) {
	l := newLab(t)
	first, err := l.load(cluster.All, "add 100 allow tcp from any to any\n", 0)
	if err != nil || first.Number != (cluster.Number{Epoch: 1, Count: 1}) {
		t.Fatalf("%+v: %v", first, err)
	}
	second, err := l.load(cluster.RoleScope("ra"), "add 200 deny ip from any to any\n", 0)
	if err != nil || len(second.Scopes) != 2 ||
		second.Scopes[cluster.All] != first.Scopes[cluster.All] {
		t.Fatalf("%+v: %v", second, err)
	}
	if _, err := ChangeMembers(t.Context(), l.admin, "bad", []cluster.Member{{
		Prefix: netip.MustParsePrefix("192.0.2.0/24")}}, nil); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"add 100 deny ip from any to any\n":                 "rule 100 is in scope all",
		"add 300 alow ip from any to any\n":                 "f:1:",
		"table bad create\nadd 7 deny ip from any to any\n": "table bad, which is a shared one",
	} {
		if _, err := l.load(cluster.NodeScope("b"), text, 0); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, head, err := Hosts(t.Context(), l.admin); err != nil || head.Number != second.Number {
		t.Errorf("head: %+v, %v", head, err)
	}
	if _, err := l.load(cluster.RoleScope("rb"), "add 200 deny udp from any to any\n",
		0); err != nil {
		t.Errorf("a number of a role that no host shares: %v", err)
	}
}

// TestLoadWithNamesOfOneMachine: a name that only this machine has is refused, with what to write
// instead. A host without it would refuse the rules, and the store parses them without any.
func TestLoadWithNamesOfOneMachine(t *testing.T) {
	l := newLab(t)
	names := new(rule.Names)
	if err := errors.Join(names.ReadServices(strings.NewReader("gitd 9418/tcp\n")),
		names.ReadProtocols(strings.NewReader("quux 200\n"))); err != nil {
		t.Fatal(err)
	}
	load := func(text string) error {
		_, _, err := Load(t.Context(), l.admin, Loading{Scope: cluster.All, Name: "f", Text: text,
			By: "me", Parse: func(name, text string) (*rule.Ruleset, error) {
				return rule.ParseFile(name, text, names)
			}})
		return err
	}
	for _, text := range []string{"add allow tcp from any to me gitd\n",
		"add allow tcp from any to me ssh,gitd\n", "add allow ip from any to me dst-port gitd\n",
		"add allow quux from any to any\n"} {
		var mistakes rule.Errors
		if err := load(text); !errors.As(err, &mistakes) ||
			!strings.Contains(mistakes.Report(), "hint: write the number: not every host") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, head, err := Hosts(t.Context(), l.admin); err != nil || head.Number.Count != 0 {
		t.Errorf("head: %+v, %v", head, err)
	}
	if err := load("add allow tcp from any to me ssh,9418\n"); err != nil {
		t.Error(err)
	}
}

// TestConcurrentLoads: no load is lost.
func TestConcurrentLoads(t *testing.T) {
	l := newLab(t)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			_, errs[i] = l.load(cluster.NodeScope(fmt.Sprint("n", i)),
				fmt.Sprintf("add %d allow ip from any to any\n", i+1), 0)
		})
	}
	all.Wait()
	_, head, err := Hosts(t.Context(), l.admin)
	if errors.Join(errs...) != nil || err != nil || len(head.Scopes) != 8 ||
		head.Number.Count != 8 {
		t.Errorf("%v, %+v, %v", errs, head, err)
	}
}

// TestConfirm: not while a host that switched was not heard of since, unless it is named: a stolen
// one may never report. And once.
func TestConfirm(t *testing.T) {
	l := newLab(t)
	if _, _, err := Confirm(t.Context(), l.admin, "me", Signer{}, Without{}); err == nil {
		t.Error("nothing is on trial")
	}
	trial, err := l.load(cluster.All, "add 100 allow tcp from any to any\n", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.load(cluster.All, "add 200 allow tcp from any to any\n", 0); err == nil {
		t.Error("a load during a trial")
	}
	l.report("a", cluster.Report{Enforced: trial.Number, Connected: true})
	l.report("b", cluster.Report{Enforced: trial.Number})
	if _, _, err := Confirm(t.Context(), l.admin, "me", Signer{}, Without{}); err == nil ||
		!strings.HasSuffix(err.Error(), ": b") {
		t.Errorf("b was not heard of: %v", err)
	}
	for name, want := range map[string]string{"a": ": b", "c": `no host "c"`} {
		if _, _, err := Confirm(t.Context(), l.admin, "me", Signer{}, Without{Hosts: []string{
			name}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	key := ed25519.NewKeyFromSeed(make([]byte, 32))
	h, hosts, err := Confirm(t.Context(), l.admin, "me", Signer{Key: key},
		Without{Hosts: []string{"b"}})
	if err != nil || !h.Same(trial) || h.Trial != nil || len(hosts) != 2 ||
		h.Verify([]cluster.Key{cluster.Key(key.Public().(ed25519.PublicKey))}) != nil {
		t.Errorf("%+v, %v, %v", h, hosts, err)
	}
	if _, _, err := Confirm(t.Context(), l.admin, "me", Signer{}, Without{}); err == nil {
		t.Error("confirmed twice")
	}
}

// TestRevert: the previous version is back at once, with the signature from when the trial began,
// and another can be loaded.
func TestRevert(t *testing.T) {
	l := newLab(t)
	if _, _, err := Revert(t.Context(), l.admin); err == nil {
		t.Error("nothing is on trial")
	}
	before, err := l.load(cluster.All, "add 100 allow tcp from any to any\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	trial, err := l.load(cluster.All, "add 200 allow tcp from any to any\n", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	h, hosts, err := Revert(t.Context(), l.admin)
	if err != nil || !h.Same(before) || h.Trial != nil || h.Number != trial.Trial.Revert.Number ||
		len(hosts) != 2 || !bytes.Equal(h.Signature, trial.Trial.Revert.Signature) {
		t.Errorf("%+v, %v, %v", h, hosts, err)
	}
	if _, _, err := Confirm(t.Context(), l.admin, "me", Signer{}, Without{All: true}); err == nil {
		t.Error("confirmed after going back")
	}
	if _, err := l.load(cluster.All, "add 300 allow tcp from any to any\n", 0); err != nil {
		t.Errorf("another version: %v", err)
	}
}

// TestAwait: every host counts as one of three, and a later version counts, too.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		n := cluster.Number{Epoch: 1, Count: 5}
		done := make(chan Outcome)
		go func() {
			o, err := Await(t.Context(), l.admin, n, []string{"a", "b"})
			if err != nil {
				t.Error(err)
			}
			done <- o
		}()
		l.report("a", cluster.Report{Enforced: cluster.Number{Epoch: 1, Count: 6}})
		l.report("b", cluster.Report{Refused: &n, Why: "rule 1"})
		if o := <-done; !slices.Equal(o.Enforced, []string{"a"}) || o.Refused["b"] != "rule 1" ||
			len(o.Silent) > 0 {
			t.Errorf("%+v", o)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n.Count = 7
		if o, err := Await(ctx, l.admin, n, []string{"a", "b"}); err != nil || len(o.Silent) != 2 {
			t.Errorf("%+v, %v", o, err)
		}
	})
}

// TestMembers: members come and go, in whichever order of writers; a bucket that is empty stays.
func TestMembers(t *testing.T) {
	l := newLab(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 32)
			if n, err := ChangeMembers(t.Context(), l.admin, "bad", []cluster.Member{{Prefix: p,
				Value: uint32(i)}}, nil); err != nil || n != 1 {
				t.Errorf("%d: %v", n, err)
			}
			if i%2 == 0 {
				if n, err := ChangeMembers(t.Context(), l.admin, "bad", nil,
					[]netip.Prefix{p, netip.MustParsePrefix("::/0")}); err != nil || n != 1 {
					t.Errorf("%d: %v", n, err)
				}
			}
		})
	}
	all.Wait()
	s, err := l.model.Read(t.Context(), cluster.TableTree, 0)
	if err != nil {
		t.Fatal(err)
	}
	members := 0
	for _, e := range s.Entries {
		if len(e.Value) == 0 {
			continue
		}
		m, err := cluster.Decode[cluster.Members](e.Value)
		if err != nil {
			t.Error(err)
		}
		members += len(m.Members)
	}
	if members != 20 {
		t.Errorf("%d members", members)
	}
}

// TestTablesOfTheRules: a table that the rules define cannot become a shared one. Both a version on
// trial and the one before it count.
func TestTablesOfTheRules(t *testing.T) {
	l := newLab(t)
	may := func(table string) error {
		return MayShare(t.Context(), l.admin, table,
			func(name, text string) (*rule.Ruleset, error) {
				return rule.ParseFile(name, text, new(rule.Names))
			})
	}
	if err := may("lan"); err != nil {
		t.Errorf("before the first version: %v", err)
	}
	const before = "table lan add 10.0.0.0/8\nadd 1 deny ip from table(bad) to any\n"
	const next = "table net create\nadd 1 deny ip from table(bad) to any\n"
	for _, c := range []struct {
		text          string
		try           time.Duration
		lan, net, bad bool
	}{
		{before, 0, false, true, true}, {next, time.Minute, false, false, true},
	} {
		if _, err := l.load(cluster.RoleScope("ra"), c.text, c.try); err != nil {
			t.Fatal(err)
		}
		for table, want := range map[string]bool{"lan": c.lan, "net": c.net, "bad": c.bad} {
			if err := may(table); (err == nil) != want ||
				err != nil && !strings.Contains(err.Error(), "scope role:ra define table "+table) {
				t.Errorf("%q: table %s: %v", c.text, table, err)
			}
		}
	}
}

// TestRules: a host's rules come with their scopes, and a scope's text as it was loaded.
func TestRules(t *testing.T) {
	l := newLab(t)
	const text = "# for ra\nadd 50 deny ip from any to any\n"
	for scope, text := range map[cluster.Scope]string{
		cluster.All:             "add 100 allow tcp from any to any\n",
		cluster.RoleScope("ra"): text,
		cluster.NodeScope("b"):  "add 70 allow udp from any to any\n"} {
		if _, err := l.load(scope, text, 0); err != nil {
			t.Fatal(err)
		}
	}
	parse := func(name, text string) (*rule.Ruleset, error) {
		return rule.ParseFile(name, text, new(rule.Names))
	}
	for name, want := range map[string]string{"a": "50 role:ra, 100 all",
		"b": "70 node:b, 100 all"} {
		all, head, err := Rules(t.Context(), l.admin, name, parse)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range all {
			got = append(got, fmt.Sprintf("%d %s", r.Number, r.Scope))
		}
		if strings.Join(got, ", ") != want || head.Number.Count != 3 {
			t.Errorf("%s has %q by %v, not %s", name, got, head.Number, want)
		}
	}
	if _, _, err := Rules(t.Context(), l.admin, "c", parse); err == nil {
		t.Error("a host that is none has rules")
	}
	if got, head, err := Text(t.Context(), l.admin, cluster.RoleScope("ra")); err != nil ||
		got != text || head.Number.Count != 3 {
		t.Errorf("the text is %q: %v", got, err)
	}
	if _, _, err := Text(t.Context(), l.admin, cluster.RoleScope("rb")); err == nil {
		t.Error("a scope without rules has a text")
	}
}
