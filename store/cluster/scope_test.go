package cluster

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/testrand"
	"github.com/weirnet/weir/rule"
)

func rules(t *testing.T, name, text string) *rule.Ruleset {
	t.Helper()
	set, err := rule.ParseFile(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestParseScope(t *testing.T) {
	for _, text := range []string{"all", "role:web", "node:host-1"} {
		if s, err := ParseScope(text); string(s) != text || err != nil {
			t.Errorf("%s: %q, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "role:", "role", "node:a/b", "all:x", "web", "role:a:b"} {
		if s, err := ParseScope(text); err == nil {
			t.Errorf("%q is %q", text, s)
		}
	}
}

func TestMergedRules(t *testing.T) {
	v := Version{
		All: rules(t, "all.rules", "add 100 check-state\nadd 65000 deny log ip from any to any\n"),
		RoleScope("web"): rules(t, "web.rules",
			"add 2000 allow tcp from any to me 80 setup keep-state\n"+
				"add 2000 allow tcp from any to me 443 setup keep-state\n"),
		RoleScope("db"): rules(t, "db.rules", "add 2000 allow tcp from 10.0.0.0/8 to me 5432\n"),
		NodeScope("a"):  rules(t, "a.rules", "add 1000 allow tcp from 192.0.2.1 to me 22\n"),
	}
	merged, err := v.For(Host{Name: "a", Roles: []string{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range merged.Rules {
		got = append(got, fmt.Sprintf("%d %s", r.Number, place(r)))
	}
	want := "100 all.rules:1, 1000 a.rules:1, 2000 web.rules:1, 2000 web.rules:2, " +
		"65000 all.rules:2"
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, expected %s", strings.Join(got, ", "), want)
	}
	if _, err := rule.Compile(merged, rule.CompileOptions{}); err != nil {
		t.Error(err)
	}

	_, err = v.For(Host{Name: "b", Roles: []string{"web", "db"}})
	want = "rule 2000 is in scope role:db (db.rules:1) and in scope role:web (web.rules:1): " +
		"a host with both could not order them; change one"
	if err == nil || err.Error() != want {
		t.Errorf("%v, expected %s", err, want)
	}
	if err := v.Check([]Host{{Name: "a", Roles: []string{"web"}}, {Name: "b",
		Roles: []string{"db"}}}); err != nil {
		t.Errorf("no host has both roles: %v", err)
	}
}

// TestMembersWithTimeout: a version of a cluster has no member that ends.
func TestMembersWithTimeout(t *testing.T) {
	set, err := rule.ParseFile("all", "table t create\ntable t add 192.0.2.1 timeout 1h\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	v := Version{All: set}
	if _, err := v.For(Host{Name: "a"}); err == nil {
		t.Error("a host takes it")
	}
	if err := v.Check(nil); err == nil || !strings.Contains(err.Error(), "table t") {
		t.Errorf("stored: %v", err)
	}
}

func TestTablesAndSetsClash(t *testing.T) {
	v := Version{
		All: rules(t, "all.rules", "table blocked add 192.0.2.0/24\nset disable 3\n"+
			"pipe 5 config bw 1Mbit/s\ndisable one_pass\nnat 6 config if eth0\n"),
		RoleScope("web"): rules(t, "web.rules", "table blocked add 192.0.2.0/24\n"+
			"table own add 192.0.2.0/24\nadd 10 set 3 allow ip from any to any\n"+
			"pipe 5 config bw 2Mbit/s\nnat 6 config if eth1\n"),
	}
	_, err := v.For(Host{Name: "a", Roles: []string{"web"}})
	for _, want := range []string{
		"table blocked is in scope all (defined there) and in scope role:web (defined there)",
		"pipe 5 is in scope all (configured there) and in scope role:web (configured there)",
		"nat 6 is in scope all (configured there) and in scope role:web (configured there)",
		"set 3 is in scope all (disabled there) and in scope role:web (web.rules:3)",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nexpected %s", err, want)
		}
	}
	if merged, err := v.For(Host{Name: "b"}); err != nil || len(merged.Tables) != 1 ||
		merged.Disabled != 1<<3 || len(merged.Pipes) != 1 || len(merged.NATs) != 1 ||
		!merged.ManyPass {
		t.Errorf("%+v, %v", merged, err)
	}
}

// randomVersion makes rules that seldom clash, and every rule with its own address, by which tests
// know it.
func randomVersion(random *rand.Rand) Version {
	v := Version{}
	for _, s := range []Scope{All, RoleScope("a"), RoleScope("b"), RoleScope("c"),
		NodeScope("x"), NodeScope("y")} {
		if random.IntN(5) == 0 {
			continue
		}
		set := &rule.Ruleset{}
		for range random.IntN(5) {
			set.Add(&rule.Rule{Number: uint16(1 + random.IntN(60)), Set: uint8(random.IntN(9)),
				Pos: rule.Pos{File: string(s)}})
		}
		if random.IntN(3) == 0 {
			set.Tables = map[string]rule.Table{fmt.Sprint(random.IntN(6)): {}}
		}
		if random.IntN(3) == 0 {
			set.Disabled = 1 << random.IntN(9)
		}
		v[s] = set
	}
	return v
}

// modelFor merges by trying every number in order and every scope in order. clash reports whether
// two scopes have the same number or table, or one evaluates a rule that another one disables.
func modelFor(v Version, h Host) (merged []*rule.Rule, clash bool) {
	tables := map[string]bool{}
	var disabled uint32
	for _, s := range h.Scopes() {
		if v[s] == nil {
			continue
		}
		disabled |= v[s].Disabled
		for name := range v[s].Tables {
			clash = clash || tables[name]
			tables[name] = true
		}
	}
	for number := range 64 { // randomVersion uses 1 to 60
		from := ""
		for _, s := range h.Scopes() {
			if v[s] == nil {
				continue
			}
			for _, r := range v[s].Rules {
				if int(r.Number) != number {
					continue
				}
				clash = clash || from != "" && from != string(s) ||
					disabled>>r.Set&1 != v[s].Disabled>>r.Set&1
				from = string(s)
				merged = append(merged, r)
			}
		}
	}
	return merged, clash
}

// TestMergeProperties compares random merges with the model, and Check with the hosts one by one.
// The order in which a host's roles are listed makes no difference.
func TestMergeProperties(t *testing.T) {
	seed := testrand.Seed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	clashed := 0
	const rounds = 1000
	for range rounds {
		v := randomVersion(random)
		var all error
		var hosts []Host
		for _, name := range []string{"x", "y", "z"} {
			h := Host{Name: name}
			for _, role := range []string{"a", "b", "c"} {
				if random.IntN(3) == 0 {
					h.Roles = append(h.Roles, role)
				}
			}
			hosts = append(hosts, h)
			want, clash := modelFor(v, h)
			got, err := v.For(h)
			if clash != (err != nil) || err == nil && !slices.Equal(got.Rules, want) {
				t.Fatalf("seed %d: %+v: clash %v, %v", seed, h, clash, err)
			}
			shuffled := Host{h.Name, append(slices.Clone(h.Roles), h.Roles...)}
			random.Shuffle(len(shuffled.Roles), func(i, j int) {
				shuffled.Roles[i], shuffled.Roles[j] = shuffled.Roles[j], shuffled.Roles[i]
			})
			again, other := v.For(shuffled)
			if fmt.Sprint(other) != fmt.Sprint(err) || err == nil && !slices.Equal(again.Rules,
				got.Rules) {
				t.Fatalf("seed %d: %+v: %v, in another order %v", seed, h, err, other)
			}
			all = errors.Join(all, err)
		}
		if err := v.Check(hosts); (err == nil) != (all == nil) {
			t.Fatalf("seed %d: all hosts: %v, one by one: %v", seed, err, all)
		}
		if all != nil {
			clashed++
		}
	}
	if clashed < rounds/10 || clashed > rounds*9/10 {
		t.Errorf("seed %d: %d of %d clash: the test compares little", seed, clashed, rounds)
	}
}

// TestExamples: the texts of examples/cluster are a version that hosts of any roles can have.
func TestExamples(t *testing.T) {
	v := Version{}
	for scope, file := range map[Scope]string{All: "all", RoleScope("web"): "web",
		RoleScope("db"): "db"} {
		text, err := os.ReadFile("../../examples/cluster/" + file + ".rules")
		if err != nil {
			t.Fatal(err)
		}
		if v[scope], err = rule.ParseFile(file, string(text), new(rule.Names)); err != nil {
			t.Fatal(err)
		}
	}
	both := Host{Name: "c", Roles: []string{"db", "web"}}
	err := v.Check([]Host{{Name: "a", Roles: []string{"web"}}, {Name: "b", Roles: []string{"db"}},
		both})
	if err != nil {
		t.Error(err)
	}
	merged, err := v.For(both)
	if err != nil {
		t.Fatal(err)
	}
	if len(merged.Rules) != 11 {
		t.Errorf("a host with both roles has %d rules", len(merged.Rules))
	}
}
