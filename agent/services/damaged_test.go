package services

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/problem"
)

// damagedHost is a host with a service whose record is damaged then, and its next agent.
func damagedHost(t *testing.T) (h *fakeHost, s *Manager, file string) {
	t.Helper()
	h = &fakeHost{begun: true}
	file = filepath.Join(t.TempDir(), "services.json")
	first := h.service(t, file)
	other := webRequest()
	other.Name, other.At = "other", netip.MustParseAddrPort("10.200.0.11:80")
	for _, r := range []func() error{
		func() error { _, err := first.Add(webRequest()); return err },
		func() error { _, err := first.Add(other); return err }} {
		if err := r(); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text[:len(text)-3], 0o600); err != nil {
		t.Fatal(err)
	}
	s = New(first.config)
	if s.Load() == nil {
		t.Fatal("a damaged record is read")
	}
	h.sets = 0
	return h, s, file
}

// TestDamagedRecord: it is an error of the listing, and leaves what is in force. The services can
// be added again, which sets the record aside, and addresses without a service leave the loopback.
func TestDamagedRecord(t *testing.T) {
	h, s, file := damagedHost(t)
	if _, err := s.List(); err == nil {
		t.Error("a damaged record is listed as one without services")
	}
	if m, err := s.Metrics(); err != nil || len(m) != 0 {
		t.Errorf("metrics: %v, %v", m, err)
	}
	err := s.Begin()
	if err == nil || !strings.Contains(problem.Hint(err, ""), "weir service add") {
		t.Errorf("it begins: %v", err)
	}
	if err := s.follow(true); err != nil || h.sets != 0 || len(h.lo) != 2 {
		t.Errorf("%v, %d sets, addresses %v", err, h.sets, h.lo)
	}
	if _, err := s.Add(webRequest()); err != nil {
		t.Fatal(err)
	}
	if len(h.set) != 1 || len(h.lo) != 1 || h.lo[0] != webRequest().At.Addr() {
		t.Errorf("services %v, addresses %v", h.set, h.lo)
	}
	aside, _ := filepath.Glob(file + ".damaged-*")
	if p := fmt.Sprint(s.config.Problems.All()); len(aside) != 1 || !strings.Contains(p, aside[0]) {
		t.Errorf("set aside as %v, problems %s", aside, p)
	}
	if r, err := readRecord(file); err != nil || len(r.Services) != 1 || len(r.Held) != 1 {
		t.Errorf("the record is %v, %v", r, err)
	}
}

// TestDamagedRecordIsRemoved: the addresses that it names leave the loopback, so that the services
// can be added again.
func TestDamagedRecordIsRemoved(t *testing.T) {
	h, s, file := damagedHost(t)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(); err != nil || len(h.lo) != 0 || len(h.set) != 0 {
		t.Errorf("%v, addresses %v, services %v", err, h.lo, h.set)
	}
	if _, err := s.Add(webRequest()); err != nil {
		t.Error(err)
	}
}
