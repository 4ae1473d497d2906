package cluster

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/store"
)

// TestDocumentsHaveOneForm: what Decode lets through is what Encode writes, so that two hosts never
// read one value differently.
func TestDocumentsHaveOneForm(t *testing.T) {
	const good = `{"version":1,"pods":[{"name":"a","addrs":["10.0.0.1"],"labels":{"app":"web"}}]}`
	p, err := Decode[Pods]([]byte(good))
	if err != nil || p.Pods[0].Labels["app"] != "web" {
		t.Fatalf("%+v: %v", p, err)
	}
	for _, c := range []struct {
		name, value string
		want        error
	}{
		{"nothing", ``, ErrDocument},
		{"a blank", strings.Replace(good, `:1`, `: 1`, 1), ErrDocument},
		{"behind the end", good + `{}`, ErrDocument},
		{"an unknown field", strings.Replace(good, `{"v`, `{"x":1,"v`, 1), ErrDocument},
		{"another case", strings.Replace(good, `name`, `Name`, 1), ErrDocument},
		{"a repeated field", strings.Replace(good, `"name":"a"`, `"name":"b","name":"a"`, 1),
			ErrDocument},
		{"a repeated label", strings.Replace(good, `{"app"`, `{"app":"db","app"`, 1), ErrDocument},
		{"an escape", strings.Replace(good, `"a"`, `"\u0061"`, 1), ErrDocument},
		{"another order", `{"pods":[{"name":"a","addrs":["10.0.0.1"]}],"version":1}`, ErrDocument},
		{"no version", strings.Replace(good, `"version":1,`, ``, 1), ErrDocument},
		{"an older version", strings.Replace(good, `:1,`, `:0,`, 1), ErrDocument},
		{"a later version", strings.Replace(good, `:1,`, `:2,`, 1), ErrNewer},
		{"an address written otherwise", strings.Replace(good, `10.0.0.1`, `::ffff:10.0.0.1`, 1),
			ErrDocument},
		{"a zone", strings.Replace(good, `10.0.0.1`, `fe80::1%eth0`, 1), ErrDocument},
		{"too long", `{"version":1,"pods":"` + strings.Repeat("x", maxDocument) + `"}`,
			ErrDocument},
		{"no pods", `{"version":1,"pods":[]}`, ErrDocument},
		{"a label with =", strings.Replace(good, `app`, `a=b`, 1), ErrDocument},
		{"a label of two lines", strings.Replace(good, `web`, `w\n`, 1), ErrDocument},
	} {
		if _, err := Decode[Pods]([]byte(c.value)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"version":1,"members":[{"prefix":"10.0.0.0/8","value":3}]}`))
	f.Add([]byte(`{"version":1,"number":{"epoch":1,"count":1},"by":"x"}`))
	f.Fuzz(func(t *testing.T, value []byte) {
		if m, err := Decode[Members](value); err == nil {
			same(t, &m, value)
		}
		if h, err := Decode[Head](value); err == nil {
			same(t, &h, value)
		}
		if n, err := Decode[Node](value); err == nil {
			same(t, &n, value)
		}
	})
}

func same(t *testing.T, d Document, value []byte) {
	t.Helper()
	again, err := Encode(d)
	if err != nil || string(again) != string(value) {
		t.Errorf("%s becomes %s (%v)", value, again, err)
	}
}

// TestTrialNumbers: going back is newer than the trial, confirming is newer than going back, and
// what follows is newer than all three.
func TestTrialNumbers(t *testing.T) {
	first := Head{Number: Number{1, 7}, Scopes: map[Scope]Digest{All: {1}}, By: "a"}
	trial := first.Next(map[Scope]Digest{All: {2}}, "a", time.Minute)
	good, err := trial.Confirmed("a")
	if err != nil {
		t.Fatal(err)
	}
	next := trial.Next(nil, "a", 0)
	numbers := []Number{first.Number, trial.Number, trial.Trial.Revert.Number, good.Number,
		next.Number}
	if !slices.IsSortedFunc(numbers, Number.Compare) || next.Number == good.Number {
		t.Errorf("numbers: %v", numbers)
	}
	if !trial.Trial.Revert.Same(&first) || !good.Same(&trial) {
		t.Error("reverting has other rules than before, or confirming than the trial")
	}
	if _, err := good.Confirmed("a"); err == nil {
		t.Error("a confirmed version is confirmed again")
	}
	for _, h := range []*Head{&first, &trial, &good, &next} {
		value, err := Encode(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode[Head](value); err != nil {
			t.Error(err)
		}
	}
	trial.Trial.Revert.Number = trial.Number.plus(5)
	if _, err := Encode(&trial); err == nil {
		t.Error("a trial that goes back to a number of its own choice")
	}
}

// TestTexts: a text comes back whole, and nothing else comes back under its digest.
func TestTexts(t *testing.T) {
	var text strings.Builder
	for a := netip.MustParseAddr("10.0.0.0"); text.Len() < 4<<20; a = a.Next() {
		text.WriteString("table t add " + a.String() + " " + TextDigest(a.String()).String() + "\n")
	}
	digest, parts, err := EncodeText(text.String())
	if err != nil || len(parts) < 2 {
		t.Fatalf("%d parts: %v", len(parts), err)
	}
	if got, err := DecodeText(digest, parts); err != nil || got != text.String() {
		t.Errorf("%d bytes of %d: %v", len(got), text.Len(), err)
	}
	_, other, err := EncodeText("add allow ip from any to any\n")
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]store.Entry{
		"a part is missing":   parts[1:],
		"the last is missing": parts[:len(parts)-1],
		"other parts":         {{Key: parts[0].Key, Value: other[0].Value}},
		"nothing":             nil,
		"not compressed":      {{Key: parts[0].Key, Value: []byte(`{"version":1,"data":"AAAA"}`)}},
	} {
		if _, err := DecodeText(digest, bad); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestStoresAreFew: a description of the cluster has few weir-stores: a host tries all of them
// before it tries one of them again.
func TestStoresAreFew(t *testing.T) {
	i := Identity{ID: Serial{1}, Epoch: 1, Stores: make([]string, maxStores)}
	if err := i.Check(); err != nil {
		t.Error(err)
	}
	i.Stores = append(i.Stores, "evil:1")
	if err := i.Check(); err == nil {
		t.Errorf("%d are possible", len(i.Stores))
	}
}
