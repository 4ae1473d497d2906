package peers

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/overlay"
)

// TestPeersRecord: what is written is read again, by its owner alone; without a record there are no
// peers, and a broken one is reported.
func TestPeersRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state", "peers.json")
	if r, err := readRecord(file); err != nil || len(r.Peers) != 0 {
		t.Errorf("without a record: %+v, %v", r, err)
	}
	want := []overlay.Peer{
		{Name: "a", Key: overlay.Key{1}, Preshared: overlay.Key{2},
			Endpoints: []string{"a.example:51820", "192.0.2.1:1"},
			Pods:      []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")},
			Keepalive: 25 * time.Second},
		{Name: "b", Key: overlay.Key{3}, Pods: []netip.Prefix{netip.MustParsePrefix("fd00::/64")},
			Unencrypted: true},
	}
	r := recordFile{Interface: "weir0"}
	for _, p := range want {
		r.Peers = append(r.Peers, recordOf(p))
	}
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the record has pre-shared keys; %v, %v", info.Mode(), err)
	}
	back, err := readRecord(file)
	if err != nil || back.Interface != "weir0" || len(back.Peers) != len(want) {
		t.Fatalf("%+v, %v", back, err)
	}
	for i, one := range back.Peers {
		if got := one.peer(); !reflect.DeepEqual(got, want[i]) {
			t.Errorf("got  %+v\nwant %+v", got, want[i])
		}
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(file); !errors.Is(err, errDamaged) {
		t.Errorf("a broken record: %v", err)
	}
}

// TestDamagedRecord: of a record that is cut off anywhere, or makes no sense, the ranges that can
// be found are held. One of a later version is not damaged.
func TestDamagedRecord(t *testing.T) {
	file := filepath.Join(t.TempDir(), "peers.json")
	r := recordFile{Interface: "weir0", Peers: []peerRecord{
		recordOf(overlay.Peer{Name: "a", Key: overlay.Key{1},
			Endpoints: []string{"[2001:db8::1]:51820"},
			Pods:      []netip.Prefix{netip.MustParsePrefix("10.88.2.0/24")}}),
		recordOf(overlay.Peer{Name: "b", Key: overlay.Key{2},
			Pods: []netip.Prefix{netip.MustParsePrefix("fd00:88:2::/120")}}),
	}, Held: []heldRecord{{Name: "c", Pods: []netip.Prefix{netip.MustParsePrefix("10.88.4.0/22")}}}}
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for n := range len(whole) - 1 { // without the last line's end it is whole
		if err := os.WriteFile(file, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readRecord(file)
		if !errors.Is(err, errDamaged) || len(got.Peers) > 0 || len(got.Held) != 1 ||
			len(got.Held[0].Pods) < last {
			t.Fatalf("cut at %d: %+v, %v", n, got, err)
		}
		last = len(got.Held[0].Pods)
	}
	if last != 3 {
		t.Errorf("%d ranges were found at last, want 3", last)
	}
	for text, damaged := range map[string]bool{
		strings.Replace(string(whole), `"name": "b"`, `"name": "a"`, 1):                    true,
		strings.Replace(string(whole), `"10.88.2.0/24"`, `"10.88.2.1/24"`, 1):              true,
		strings.Replace(string(whole), `"version": 1`, `"version": 2`, 1):                  false,
		strings.Replace(string(whole), overlay.Key{1}.String(), overlay.Key{}.String(), 1): true,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readRecord(file); err == nil || errors.Is(err, errDamaged) != damaged ||
			len(got.Held) != 1 || len(got.Held[0].Pods) < 2 {
			t.Errorf("%s\n%+v, %v", text, got, err)
		}
	}
}

// TestHeldRanges: what is held follows from who comes and goes.
func TestHeldRanges(t *testing.T) {
	ranges := func(text ...string) (all []netip.Prefix) {
		for _, s := range text {
			all = append(all, netip.MustParsePrefix(s))
		}
		return all
	}
	p := &Service{recorded: recorded{byName: map[string]overlay.Peer{},
		held: map[string][]netip.Prefix{}}}
	step := func(what string, next recorded, held map[string][]netip.Prefix, closed ...string) {
		t.Helper()
		p.recorded = next
		if !reflect.DeepEqual(next.held, held) ||
			!slices.Equal(next.closedRanges(), ranges(closed...)) {
			t.Errorf("%s: held are %v, closed %v", what, next.held, next.closedRanges())
		}
	}
	type h = map[string][]netip.Prefix
	a := overlay.Peer{Name: "a", Pods: ranges("10.1.0.0/24", "10.2.0.0/24")}
	step("added", p.plus(a), h{}, "10.1.0.0/24", "10.2.0.0/24")
	a.Pods = ranges("10.1.0.0/24")
	step("changed", p.plus(a), h{"a": ranges("10.2.0.0/24")}, "10.1.0.0/24", "10.2.0.0/24")
	step("removed", p.minus(a, false), h{"a": ranges("10.2.0.0/24", "10.1.0.0/24")}, "10.2.0.0/24",
		"10.1.0.0/24")
	b := overlay.Peer{Name: "b", Pods: ranges("10.2.0.0/23", "10.1.0.0/25")}
	step("another has one of its ranges", p.plus(b), h{"a": ranges("10.1.0.0/24")}, "10.2.0.0/23",
		"10.1.0.0/25", "10.1.0.0/24")
	step("released", p.minus(overlay.Peer{Name: "a"}, true), h{}, "10.2.0.0/23", "10.1.0.0/25")
	b.Unencrypted = true
	step("without encryption", p.plus(b), h{})
	step("removed", p.minus(b, false), h{})
}
