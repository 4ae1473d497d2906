package nat

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// heldHost is a host on which addresses and ports can be in the way of the settings.
type heldHost struct {
	own, only []netip.Addr
	taken     *forward.TakenError
	broken    error // of the engine

	ports    []forward.Published
	others   []forward.SourceNAT
	problems problem.List
	*Service
}

func newHeldHost(t *testing.T) *heldHost {
	t.Helper()
	var s Settings
	err := s.Apply([]ForwardFile{{Listen: ":80", To: "10.0.5.80:80"},
		{Listen: ":8000-8001", To: "10.0.5.8:8000-8001"}, {Listen: ":81", To: "10.0.5.81:80"}},
		[]MasqueradeFile{{Source: "10.0.6.0/24"}},
		[]BinatFile{{Listen: "203.0.113.1", To: "10.0.5.1"},
			{Listen: "203.0.113.2", To: "10.0.5.2"}, {Listen: "203.0.113.3", To: "10.0.5.3"}})
	if err != nil {
		t.Fatal(err)
	}
	h := &heldHost{problems: problem.List{Log: slog.New(slog.DiscardHandler)}}
	h.Service = New(Config{Settings: s, Problems: &h.problems, SetForwards: h.setForwards,
		SetForwarding: func(four, six bool) error { return nil },
		SetMasquerade: func() error { h.others, _ = h.SourceNATs(); return nil },
		IsMe:          func(a netip.Addr) bool { return slices.Contains(h.own, a) },
		IsOnly: func(a netip.Addr, away []netip.Addr) bool {
			return slices.Contains(h.only, a) && slices.Contains(away, a)
		}})
	return h
}

func (h *heldHost) setForwards(all []forward.Published) error {
	if h.broken != nil {
		return h.broken
	}
	for _, p := range all {
		if h.taken != nil && slices.ContainsFunc(h.taken.Ports,
			func(t forward.TakenPort) bool { return t.Host == p.Host }) {
			return h.taken
		}
	}
	h.ports = all
	return nil
}

// has compares what is in force, ports by their targets and others by their sources, and the
// problems, each by a part of its text.
func (h *heldHost) has(t *testing.T, what, ports, others string, problems ...string) {
	t.Helper()
	var to, from []string
	for _, p := range h.ports {
		to = append(to, strings.TrimPrefix(p.Pod.Addr().String(), "10.0.5."))
	}
	for _, o := range h.others {
		from = append(from, o.Source.Addr().String())
	}
	if got := strings.Join(to, " "); got != ports {
		t.Errorf("%s: ports of %s, not of %s", what, got, ports)
	}
	if got := strings.Join(from, " "); got != others {
		t.Errorf("%s: sources %s, not %s", what, got, others)
	}
	all := h.problems.All()
	if len(all) != len(problems) {
		t.Fatalf("%s: problems %v", what, all)
	}
	for i, p := range problems {
		if !strings.Contains(all[i].What, p) {
			t.Errorf("%s: %q, not %q", what, all[i].What, p)
		}
	}
}

// TestElementsStandAlone: an element that cannot be in force holds back no other one, and is a
// problem by its name until it can.
func TestElementsStandAlone(t *testing.T) {
	h := newHeldHost(t)
	const everything = "80 8 8 81 1 2 3"
	const sources = "10.0.6.0 10.0.5.1 10.0.5.2 10.0.5.3"
	apply := func(what string, want error) {
		t.Helper()
		if err := h.Apply(); !errors.Is(err, want) {
			t.Errorf("%s: %v, not %v", what, err, want)
		}
	}
	h.own = []netip.Addr{netip.MustParseAddr("10.0.5.80"), netip.MustParseAddr("10.0.5.3")}
	if others, _ := h.SourceNATs(); len(others) != 3 {
		t.Errorf("before the first time: %v", others)
	}
	apply("targets of the host", problem.ErrNoted)
	h.has(t, "targets of the host", "8 8 81 1 2", "10.0.6.0 10.0.5.1 10.0.5.2",
		"[[forward]] 1 of weir.toml is not in force: to: 10.0.5.80 is an address of this host",
		"[[binat]] 3 of weir.toml is not in force: to: 10.0.5.3 is an address of this host")
	if h.Count() != 3 || len(h.Forwards()) != 2 || len(h.Binats()) != 2 {
		t.Errorf("%d ports, shown %v, %v", h.Count(), h.Forwards(), h.Binats())
	}
	if h.CheckServiceAddress(netip.MustParseAddr("203.0.113.3")) == nil {
		t.Error("a service may have an address that a binat waits for")
	}
	h.own, h.only = nil, []netip.Addr{netip.MustParseAddr("203.0.113.2")}
	apply("an only address", problem.ErrNoted)
	h.has(t, "an only address", "80 8 8 81 1 3", "10.0.6.0 10.0.5.1 10.0.5.3",
		"[[binat]] 2 of weir.toml is not in force: listen: 203.0.113.2 is the only address")
	h.only = nil
	apply("everything", nil)
	h.has(t, "everything", everything, sources)
	h.taken = &forward.TakenError{Ports: []forward.TakenPort{{Proto: packet.ProtoTCP,
		Host: netip.MustParseAddrPort("0.0.0.0:8001"), By: errors.New("a pod has it")}}}
	apply("a taken port", problem.ErrNoted)
	h.has(t, "a taken port", "80 81 1 2 3", sources,
		"[[forward]] 2 of weir.toml is not in force: listen: tcp port 8001 of 0.0.0.0: a pod has")
	h.taken, h.broken = nil, errors.New("no memory")
	apply("a broken engine", h.broken)
	h.has(t, "a broken engine", "80 81 1 2 3", sources)
}
