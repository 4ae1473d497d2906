package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/nstest"
)

// TestLastResortInSpiteOfOptions: a mistake in the options, which the unit gives the agent and the
// last resort, does not leave a host open that has rules.
func TestLastResortInSpiteOfOptions(t *testing.T) {
	lab := nstest.New(t)
	host := lab.Node("host")
	lab.Join(host, "eth0", "10.0.0.1/24", lab.Node("far"), "eth0", "10.0.0.2/24")
	link := host.Link("eth0")
	root := t.TempDir()
	rules := filepath.Join(root, "etc/weir/rules")
	if err := os.MkdirAll(filepath.Dir(rules), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rules, []byte("add check-state\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]string{{"--iface", "eth0"}, {"eth0"}, {"--ifaces", "eth0"},
		{"--iface", "eth0,eth1"}, {"--confirm", "30"}, {"--confirm", "30s"}, {"--iface"},
		{"--config", "/nowhere/weir.toml"}, {"--iface", "eth1", "--verbose"}} {
		var stderr bytes.Buffer
		if err := host.Do(func() error {
			run(t.Context(), append([]string{"--root", root, "up", "--last-resort"}, options...),
				nil, io.Discard, &stderr)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if f, err := host.Netlink().FilterAt(link.Index, nl.Ingress); err != nil ||
			f.Name != "weir_last" {
			t.Errorf("%q: the filter is %q, %v\n%s", options, f.Name, err, &stderr)
		}
		if err := host.Do(kernel.UnblockAll); err != nil {
			t.Fatal(err)
		}
	}
}
