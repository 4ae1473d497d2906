package pod

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// startAgain opens a new Manager, and returns the record errors that it reported.
func (b *fixture) startAgain() (reported []error) {
	b.t.Helper()
	b.m.Close()
	err := b.host.Do(func() (err error) {
		b.m, err = New(Config{Dir: filepath.Join(b.dir, "pods"),
			Ranges: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24"),
				netip.MustParsePrefix("fd00:88::/120")},
			Labels: b.labels, OnRecordError: func(err error) {
				reported = append(reported, err)
			}}, b.fast)
		return err
	})
	if err != nil {
		b.t.Fatalf("the next start: %v", err)
	}
	b.t.Cleanup(b.m.Close)
	return reported
}

// TestDamagedRecordLeavesThePodAlone: whatever happens to a pod's record, the next start succeeds.
// The pod keeps its interface, addresses and fast path, and no other pod gets its addresses. The
// record is kept and reported; a detach then removes everything.
func TestDamagedRecordLeavesThePodAlone(t *testing.T) {
	b := newFixture(t)
	p, node := b.attach("web", Spec{Name: "shop", Labels: map[string]string{"app": "web"}})
	b.labels = func(addrs []netip.Addr) map[string]string {
		if !sameAddrs(addrs, p.Addrs) {
			return nil
		}
		return p.Labels
	}
	file := b.m.store.path(p.Key)
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	damages := [][]byte{{}, []byte("null"), []byte("{}"), []byte("\x00\xffgarbage"),
		bytes.Replace(good, []byte(`"Version": 1`), []byte(`"Version": 2`), 1),
		bytes.Replace(good, []byte("web/eth0"), []byte("wob/eth0"), 1)}
	for i := 1; i < 8; i++ {
		damages = append(damages, good[:len(good)*i/8])
	}
	if damages = append(damages, good[:bytes.LastIndexByte(good, '\n')+1]); bytes.Equal(damages[4],
		good) {
		t.Fatal("the record has no version")
	}
	for i, damaged := range damages {
		if err := os.WriteFile(file, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		reported := b.startAgain()
		var d *Damaged
		if len(reported) != 1 || !errors.As(reported[0], &d) || d.Pod != "web" || d.Hint() == "" {
			t.Errorf("%d: reported %v", i, reported)
			continue
		}
		if d.Labels["app"] != "web" || !strings.Contains(d.Error(), "keeps its name and labels") {
			t.Errorf("%d: its labels are reported as %v: %v", i, d.Labels, d)
		}
		if word := map[bool]string{true: ".newer-",
			false: ".damaged-"}[i == 4]; !strings.Contains(d.File, word) {
			t.Errorf("%d: kept as %s", i, d.File)
		}
		if kept, err := os.ReadFile(d.File); err != nil || !bytes.Equal(kept, damaged) {
			t.Errorf("%d: kept is %q, %v", i, kept, err)
		}
		if again := b.startAgain(); len(again) != 0 {
			t.Errorf("%d: the start after it reports %v", i, again)
		}
		list := b.m.List()
		if len(list) != 1 || list[0].Index != p.Index || !slices.Equal(list[0].Addrs, p.Addrs) ||
			list[0].MAC.String() != p.MAC.String() {
			t.Fatalf("%d: the pods are %+v, want %+v", i, list, p)
		}
		if !maps.Equal(list[0].Labels, p.Labels) || list[0].Name != "shop" {
			t.Errorf("%d: it is %s, its labels are %v", i, list[0].Name, list[0].Labels)
		}
		if e := b.fast.endpoints[p.Index]; !slices.Equal(e.Addrs, p.Addrs) ||
			e.MAC != p.Endpoint().MAC || e.HostMAC != p.Endpoint().HostMAC {
			t.Errorf("%d: the fast path has %+v", i, e)
		}
		for _, gw := range p.Gateway {
			if err := b.ping(node, gw); err != nil {
				t.Errorf("%d: %v", i, err)
			}
		}
	}
	other, _ := b.attach("other", Spec{})
	for _, a := range other.Addrs {
		if slices.Contains(p.Addrs, a) {
			t.Errorf("%s was given to two pods", a)
		}
	}
	for _, name := range []string{"web", "other"} {
		if err := b.do(func() error { return b.m.Detach(t.Context(), name, "") }); err != nil {
			t.Fatal(err)
		}
	}
	if left := b.traces(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestUnknownLabels: a pod whose name and labels were in its record alone loses them, and that is
// reported.
func TestUnknownLabels(t *testing.T) {
	b := newFixture(t)
	p, _ := b.attach("web", Spec{Labels: map[string]string{"app": "web"}})
	if err := os.WriteFile(b.m.store.path(p.Key), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := b.host.Netlink().LinkByName(p.HostIf)
	if err == nil {
		// as an older version sets it, or where the name does not fit
		err = b.host.Netlink().SetLinkAlias(l.Index, AliasPrefix+p.Key)
	}
	if err != nil {
		t.Fatal(err)
	}
	reported := b.startAgain()
	if len(reported) != 1 || !strings.Contains(reported[0].Error(),
		"container web runs on without its name, labels") {
		t.Errorf("reported %v", reported)
	}
	if list := b.m.List(); len(list) != 1 || len(list[0].Labels) > 0 {
		t.Errorf("the pods are %+v", list)
	}
}

// TestDamagedRecordOfADeadPod: it is set aside, reported once, and removed by Remove.
func TestDamagedRecordOfADeadPod(t *testing.T) {
	b := newFixture(t)
	p, _ := b.attach("web", Spec{})
	if err := errors.Join(os.WriteFile(b.m.store.path(p.Key), []byte("{"), 0o600),
		b.host.Netlink().DeleteLink(int(p.Index))); err != nil {
		t.Fatal(err)
	}
	var d *Damaged
	if reported := b.startAgain(); len(reported) != 1 || !errors.As(reported[0], &d) ||
		d.Pod != "" {
		t.Errorf("reported %v", reported)
	}
	if reported := b.startAgain(); len(reported) != 0 {
		t.Errorf("again: %v", reported)
	}
	b.removed()
}

// removed removes everything without a Manager.
func (b *fixture) removed() {
	b.t.Helper()
	b.m.Wait()
	if err := b.do(func() error { return Remove(filepath.Join(b.dir, "pods")) }); err != nil {
		b.t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "pods")); err == nil {
		b.t.Error("the directory is left")
	}
	b.fast.endpoints = nil
	if left := b.traces(); len(left) > 0 {
		b.t.Errorf("left: %v", left)
	}
}

// TestRemoveOfDamagedRecords: the first call removes everything, interfaces of records that cannot
// be read and leftovers of crashes included.
func TestRemoveOfDamagedRecords(t *testing.T) {
	b := newFixture(t)
	dir := filepath.Join(b.dir, "pods")
	for i, damaged := range []string{"", "{", "garbage"} {
		p, _ := b.attach(fmt.Sprint("web", i), Spec{})
		if err := os.WriteFile(b.m.store.path(p.Key), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, left := range []string{".weir01234567.json-4711", "weir01234567.json.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, left), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.removed()
}

// TestRecordsOfTheFirstVersionAreRead: they had no version.
func TestRecordsOfTheFirstVersionAreRead(t *testing.T) {
	b := newFixture(t)
	p, _ := b.attach("web", Spec{Name: "shop", Labels: map[string]string{"app": "web"}})
	file := b.m.store.path(p.Key)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{`"Moved":`, `"Extern":`} { // not the Go names of today
		if !bytes.Contains(text, []byte(key)) {
			t.Errorf("the record has no key %s:\n%s", key, text)
		}
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte(`  "Version": 1,`+"\n"), nil, 1),
		0o600); err != nil {
		t.Fatal(err)
	}
	if reported := b.startAgain(); len(reported) != 0 || len(b.m.List()) != 1 ||
		b.m.List()[0].Name != "shop" {
		t.Errorf("reported %v, pods %+v", reported, b.m.List())
	}
}

// TestGatewaysThatCannotBeRecorded: only Remove needs them; the start reports it and continues.
func TestGatewaysThatCannotBeRecorded(t *testing.T) {
	b := newFixture(t)
	file := filepath.Join(b.dir, "pods", gatewaysFile)
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
		t.Fatal(err)
	}
	if reported := b.startAgain(); len(reported) != 1 ||
		!strings.Contains(reported[0].Error(), "gateway") {
		t.Errorf("reported %v", reported)
	}
}

// TestDamagedRecordOfGateways: it does not prevent a start; the error of Remove says what to do,
// and that works.
func TestDamagedRecordOfGateways(t *testing.T) {
	b := newFixture(t)
	file := filepath.Join(b.dir, "pods", gatewaysFile)
	if err := os.WriteFile(file, []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	if reported := b.startAgain(); len(reported) != 0 {
		t.Errorf("the start reports %v", reported)
	}
	if err := os.WriteFile(file, []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	err := b.do(func() error { return Remove(filepath.Join(b.dir, "pods")) })
	if err == nil || !strings.Contains(err.Error(), "ip address del") {
		t.Fatalf("Remove: %v", err)
	}
	for _, gw := range []string{"10.88.0.1/32", "fd00:88::1/128"} { // as it advises
		if out, err := b.host.Command("ip", "address", "del", gw, "dev",
			"lo").CombinedOutput(); err != nil {
			t.Errorf("%v %s", err, out)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.removed()
}
