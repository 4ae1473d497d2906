package services

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/internal/forward"
)

// TestPodsOfAllServices: where all services together have more pods than there can be, the last
// ones lead to a part of theirs. None is held back, and the problem list says so until it is over.
func TestPodsOfAllServices(t *testing.T) {
	h := &fakeHost{begun: true}
	for i := range forward.MaxBackends {
		h.addPod(fmt.Sprint("p", i), "app=web", fmt.Sprint("10.88.0.", i))
	}
	s := h.service(t, filepath.Join(t.TempDir(), "services.json"))
	problems := &problem.List{Log: s.config.Log}
	s.config.Problems = problems
	const full = forward.MaxAllBackends / forward.MaxBackends
	for i := range full + 2 {
		s.record.Services = append(s.record.Services, Spec{Name: fmt.Sprint("s", i), Proto: 6,
			At:    netip.AddrPortFrom(netip.MustParseAddr("10.200.0.10"), uint16(i+1)),
			Table: "app=web", Port: 80})
	}
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, one := range h.set {
		total += len(one.Backends)
	}
	if len(h.set) != full+2 || total != forward.MaxAllBackends {
		t.Errorf("%d services with %d pods", len(h.set), total)
	}
	if all := problems.All(); len(all) != 1 || !strings.Contains(fmt.Sprint(all), "such as s31") {
		t.Errorf("problems %v", all)
	}
	s.record.Services = s.record.Services[:full]
	if err := s.Begin(); err != nil {
		t.Fatal(err)
	}
	if all := problems.All(); len(all) != 0 {
		t.Errorf("problems %v", all)
	}
}

// TestAddressThatCannotBeAdded: the host refuses the address of one service; the others follow
// their pods, and the error is reported.
func TestAddressThatCannotBeAdded(t *testing.T) {
	h := &fakeHost{begun: true}
	h.addPod("p", "app=web", "10.88.0.1")
	s := h.service(t, filepath.Join(t.TempDir(), "services.json"))
	add := s.config.AddAddress
	s.config.AddAddress = func(a netip.Addr) error {
		if a.Is6() {
			return os.ErrPermission
		}
		return add(a)
	}
	s.record.Services = []Spec{
		{Name: "six", Proto: 6, At: netip.MustParseAddrPort("[fd00::a]:80"), Table: "app=web",
			Port: 80},
		{Name: "four", Proto: 6, At: netip.MustParseAddrPort("10.200.0.10:80"), Table: "app=web",
			Port: 80}}
	if err := s.Begin(); err == nil {
		t.Error("no error")
	}
	if len(h.set) != 2 || len(h.lo) != 1 || len(h.set[1].Backends) != 1 {
		t.Errorf("set %v, addresses %v", h.set, h.lo)
	}
}

// TestDamagedRecords: what cannot be in force is refused when it is read, with the place, and the
// list says so rather than that there is nothing.
func TestDamagedRecords(t *testing.T) {
	const one = `{"name":"%s","proto":"tcp","at":"10.200.0.10:%d","table":"app=web","port":80}`
	for name, want := range map[string]string{
		"the same name": `"web" makes no sense: there are two of this name`,
		"the same port": `"db" makes no sense: web has its address and port`,
	} {
		second := fmt.Sprintf(one, "web", 81)
		if name == "the same port" {
			second = fmt.Sprintf(one, "db", 80)
		}
		h := &fakeHost{begun: true}
		file := filepath.Join(t.TempDir(), "services.json")
		s := h.service(t, file)
		text := `{"version":1,"services":[` + fmt.Sprintf(one, "web", 80) + "," + second + `]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.Load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, not %q", name, err, want)
		}
		if list, err := s.List(); err == nil {
			t.Errorf("%s: the list is %v", name, list)
		}
	}
}
