package hostfacts

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
)

// TestSessionOfAncestors: sudo has removed the variable from the environment of the process that
// asks; the shell above it has it.
func TestSessionOfAncestors(t *testing.T) {
	proc := t.TempDir()
	process := func(pid, parent int, environ string) {
		t.Helper()
		dir := filepath.Join(proc, fmt.Sprint(pid))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"environ": environ,
			"stat": fmt.Sprintf("%d (a) b) (c) S %d 1 1 0", pid, parent)} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	process(30, 20, "A=1\x00LANG=C\x00")
	process(20, 10, "")
	process(10, 1, "HOME=/root\x00SSH_CONNECTION=192.0.2.7 40000 10.0.0.1 2222\x00")
	process(41, 40, "SSH_CONNECTION=fe80::1%eth0 5 ::ffff:10.0.0.1 22\x00")
	process(51, 1, "SSH_CONNECTION=192.0.2.7 x 10.0.0.1 22\x00")
	process(61, 61, "")

	s, ok := sessionOf(proc, 30)
	if !ok || s.From != netip.MustParseAddrPort("192.0.2.7:40000") ||
		s.To != netip.MustParseAddrPort("10.0.0.1:2222") {
		t.Error(s, ok)
	}
	if s, ok = sessionOf(proc, 41); !ok || s.From.Addr().Zone() != "eth0" ||
		s.To != netip.MustParseAddrPort("10.0.0.1:22") {
		t.Error(s, ok)
	}
	for _, pid := range []int{51, 61, 99} {
		if s, ok := sessionOf(proc, pid); ok {
			t.Error(pid, s)
		}
	}
}
