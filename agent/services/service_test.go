package services

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// fakeHost is the engine and the loopback of a host.
type fakeHost struct {
	set   []forward.Service
	sets  int
	fails error
	lo    []netip.Addr
	local netip.Prefix // what a local route leads to
	// what the loopback does not take
	refuses map[netip.Addr]bool
	pods    []pod.Pod
	begun   bool
	counts  map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters
	seen    map[forward.ServiceKey]int
	changed []netip.Addr // what Changed was called with
}

func (h *fakeHost) SeenParts() (map[forward.ServiceKey]int, error) { return h.seen, nil }

func (h *fakeHost) SetServices(all []forward.Service) error {
	if h.sets++; h.fails != nil {
		return h.fails
	}
	h.set = all
	return nil
}

func (h *fakeHost) Services() (map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters,
	error) {
	return h.counts, nil
}

// service returns a Manager on this host, with a record in a file.
func (h *fakeHost) service(t *testing.T, file string) *Manager {
	t.Helper()
	s := New(Config{File: file, Ranges: []netip.Prefix{netip.MustParsePrefix("10.88.0.0/24")},
		Log:      slog.New(slog.DiscardHandler),
		Problems: &problem.List{Log: slog.New(slog.DiscardHandler)}, Engine: h,
		HasAddress: func(a netip.Addr) bool { return slices.Contains(h.lo, a) },
		IsMe: func(a netip.Addr) bool {
			return slices.Contains(h.lo, a) || h.local.Contains(a)
		},
		Taken: func(netip.Addr) error { return nil },
		Pods:  func() ([]pod.Pod, bool) { return h.pods, h.begun },
		AddAddress: func(a netip.Addr) error {
			if h.refuses[a] {
				return errors.New("permission denied")
			}
			h.lo = append(h.lo, a)
			return nil
		},
		RemoveAddress: func(a netip.Addr) error {
			h.lo = slices.DeleteFunc(h.lo, func(o netip.Addr) bool { return o == a })
			return nil
		},
		Changed: func(a netip.Addr) { h.changed = append(h.changed, a) }})
	if err := s.Load(); err != nil {
		t.Fatal(err)
	}
	return s
}

func webRequest() api.AddService {
	return api.AddService{Name: "web", At: netip.MustParseAddrPort("10.200.0.10:80"),
		Table: "app=web", Port: 8080}
}

func (h *fakeHost) addPod(name, label, addr string) {
	key, value, _ := strings.Cut(label, "=")
	h.pods = append(h.pods, pod.Pod{Spec: pod.Spec{Name: name,
		Labels: map[string]string{key: value}, Addrs: []netip.Addr{netip.MustParseAddr(addr)}},
		Key: name})
}

// TestServicesNotBeforePods: while the pods are not known, nothing is set, since that would end the
// flows of all of them. A host whose ranges were taken from the settings may have pods, too.
func TestServicesNotBeforePods(t *testing.T) {
	h := &fakeHost{begun: true}
	h.addPod("w1", "app=web", "10.88.0.2")
	file := filepath.Join(t.TempDir(), "services.json")
	if _, err := h.service(t, file).Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	h.begun, h.sets = false, 0
	again := h.service(t, file)
	for range 2 {
		if err := again.Begin(); err == nil || h.sets != 0 {
			t.Errorf("before the pods are known: %v, %d sets, ranges %v", err, h.sets,
				again.config.Ranges)
		}
		again.config.Ranges = nil
	}
	h.begun = true
	if err := again.Begin(); err != nil || h.sets != 1 || len(h.set) != 1 ||
		!slices.Equal(h.set[0].Backends, []forward.Backend{
			{To: netip.MustParseAddrPort("10.88.0.2:8080")}}) {
		t.Errorf("then: %v, %+v", err, h.set)
	}
}

// TestFailedAddChangesNothing: neither the record, nor the engine, nor the loopback, whatever
// fails.
func TestFailedAddChangesNothing(t *testing.T) {
	for what, fail := range map[string]func(*fakeHost, *Manager, string){
		"the engine": func(h *fakeHost, _ *Manager, _ string) { h.fails = errors.New("no") },
		"the disk": func(_ *fakeHost, s *Manager, dir string) {
			s.config.File = filepath.Join(dir, "file", "services.json")
			os.WriteFile(filepath.Join(dir, "file"), nil, 0o600)
		},
		"the loopback": func(_ *fakeHost, s *Manager, _ string) {
			s.config.AddAddress = func(netip.Addr) error { return errors.New("no") }
		},
	} {
		h, dir := &fakeHost{begun: true}, t.TempDir()
		s := h.service(t, filepath.Join(dir, "services.json"))
		fail(h, s, dir)
		if _, err := s.Add(webRequest()); err == nil {
			t.Errorf("%s fails, and the service is added", what)
		}
		h.fails = nil
		if err := s.follow(true); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if left, err := os.ReadFile(filepath.Join(dir, "services.json")); err == nil {
			t.Errorf("%s: the record is %s", what, left)
		}
		if len(h.lo) != 0 || len(h.set) != 0 {
			t.Errorf("%s: the loopback has %v, the engine %v", what, h.lo, h.set)
		}
	}
}

// TestServiceAtALocalRoute: what a local route leads to belongs to sockets of the host. A service
// that was there before the route keeps its address.
func TestServiceAtALocalRoute(t *testing.T) {
	h := &fakeHost{begun: true, local: netip.MustParsePrefix("10.200.0.0/16")}
	file := filepath.Join(t.TempDir(), "services.json")
	if _, err := h.service(t, file).Add(webRequest()); err == nil || len(h.lo) != 0 ||
		!strings.Contains(err.Error(), "10.200.0.10 is an address of this host") {
		t.Errorf("%v; the loopback has %v", err, h.lo)
	}
	h.local = netip.Prefix{}
	if _, err := h.service(t, file).Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	h.local, h.lo = netip.MustParsePrefix("10.200.0.0/16"), nil // a boot
	if err := h.service(t, file).Begin(); err != nil || len(h.lo) != 1 {
		t.Errorf("%v; the loopback has %v", err, h.lo)
	}
}

// TestServicesFollow: the engine gets what has changed and nothing else; an address that someone
// took from the loopback comes back.
func TestServicesFollow(t *testing.T) {
	h := &fakeHost{begun: true}
	s := h.service(t, filepath.Join(t.TempDir(), "services.json"))
	if _, err := s.Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	sets := h.sets
	must := func(want int) {
		t.Helper()
		if err := s.follow(true); err != nil || h.sets-sets != want {
			t.Errorf("%v, %d sets and not %d", err, h.sets-sets, want)
		}
		sets = h.sets
	}
	must(0)
	h.addPod("w2", "app=web", "10.88.0.3")
	h.addPod("d1", "app=db", "10.88.0.4")
	h.addPod("w1", "app=web", "10.88.0.2")
	must(1)
	if b := h.set[0].Backends; len(b) != 2 || b[0].To.Addr() != netip.MustParseAddr("10.88.0.2") {
		t.Errorf("backends %v", b)
	}
	slices.Reverse(h.pods)
	must(0)
	h.lo = nil
	must(0)
	if len(h.lo) != 1 {
		t.Error("the address does not come back")
	}
	h.fails = errors.New("no")
	h.pods = h.pods[:1]
	if s.follow(false) == nil {
		t.Error("no error")
	}
	h.fails, sets = nil, h.sets
	must(1)
}

// TestClosedChangesNothing: what weir down has taken away does not come back by a request, or by a
// pass of the loop, that was late.
func TestClosedChangesNothing(t *testing.T) {
	h := &fakeHost{begun: true}
	file := filepath.Join(t.TempDir(), "services.json")
	s := h.service(t, file)
	if _, err := s.Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	s.Close()
	h.lo, h.sets = nil, 0
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	other := webRequest()
	other.Name, other.At = "other", netip.MustParseAddrPort("10.200.0.11:80")
	if _, err := s.Add(other); err == nil {
		t.Error("a service is added")
	}
	if _, err := s.Remove(api.RemoveService{Name: "web"}); err == nil {
		t.Error("a service is removed")
	}
	if err := s.Begin(); err == nil {
		t.Error("it begins")
	}
	if err := s.follow(true); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); err == nil || len(h.lo) != 0 || h.sets != 0 {
		t.Errorf("record: %v, addresses %v, %d sets", err, h.lo, h.sets)
	}
}

// TestHealthReachesTheEngine: a pod that accepts nothing is set out, probed, and back.
func TestHealthReachesTheEngine(t *testing.T) {
	h := &fakeHost{begun: true}
	s := h.service(t, filepath.Join(t.TempDir(), "services.json"))
	h.addPod("w1", "app=web", "10.88.0.2")
	h.addPod("w2", "app=web", "10.88.0.3")
	if _, err := s.Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	dead := netip.MustParseAddrPort("10.88.0.2:8080")
	well := netip.MustParseAddrPort("10.88.0.3:8080")
	counts := map[netip.AddrPort]forward.BackendCounters{dead: {}, well: {}}
	h.counts = map[forward.ServiceKey]map[netip.AddrPort]forward.BackendCounters{
		h.set[0].Key(): counts}
	now := time.Duration(0)
	s.now = func() time.Duration { return now }
	second := func() forward.Backend {
		t.Helper()
		now += time.Second
		n := counts[well]
		n.Begun, n.Accepted, n.Drawn = n.Begun+9, n.Accepted+9, n.Drawn+9
		counts[well] = n
		n = counts[dead]
		n.Begun += 9
		counts[dead] = n
		if err := s.follow(true); err != nil {
			t.Fatal(err)
		}
		return h.set[0].Backends[0]
	}
	now = turnPause
	h.seen = map[forward.ServiceKey]int{h.set[0].Key(): forward.FlowParts}
	if second(); h.set[0].Turn != 1 {
		t.Error("all parts are used up, and the flows are not divided again")
	}
	h.seen = nil
	turn := h.set[0].Turn
	for i := 0; !second().Out; i++ {
		if i > 20 {
			t.Fatal("a dead pod is not set out")
		}
	}
	if h.set[0].Turn == turn {
		t.Error("the flows were not divided again before")
	}
	for i := 0; second().ProbeEnd == 0; i++ {
		if i > 5 {
			t.Fatal("no probe")
		}
	}
	n := counts[dead]
	n.Accepted++
	counts[dead] = n
	if b := second(); b.Out || b.ProbeEnd != 0 {
		t.Errorf("a pod that accepts is %+v", b)
	}
}

// TestOthersHearOfAddresses: Changed is called for the address of a service, and when it ends:
// after that, and without a lock. It is not called for what fails or changes nothing.
func TestOthersHearOfAddresses(t *testing.T) {
	h := &fakeHost{begun: true}
	s := h.service(t, filepath.Join(t.TempDir(), "services.json"))
	address := webRequest().At.Addr()
	uses := 0
	s.config.Changed = func(a netip.Addr) {
		h.changed = append(h.changed, a)
		if s.CheckRange(netip.PrefixFrom(address, 32)) != nil {
			uses++
		}
	}
	for range 2 {
		if _, err := s.Add(webRequest()); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(h.changed, []netip.Addr{address}) || uses != 1 {
		t.Errorf("added twice: %v, in use %d times", h.changed, uses)
	}
	h.fails = errors.New("the engine fails")
	if _, err := s.Remove(api.RemoveService{Name: "web"}); err == nil || len(h.changed) != 1 {
		t.Errorf("a removal that fails: %v, %v", h.changed, err)
	}
	h.fails = nil
	if _, err := s.Remove(api.RemoveService{Name: "web"}); err != nil || len(h.changed) != 2 ||
		uses != 1 {
		t.Errorf("removed: %v, in use %d times, %v", h.changed, uses, err)
	}
}
