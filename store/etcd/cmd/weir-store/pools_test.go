package main

import (
	"strings"
	"testing"
)

// TestJoinWithoutPools: a weir-store whose config.json has no pools takes none from the store,
// where an attacker may have written them. It refuses hosts that join, and says what to do.
func TestJoinWithoutPools(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	h := home(a.dir)
	c, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	pools := c.Pools
	c.Pools = nil
	if err := h.writeConfig(c); err != nil {
		t.Fatal(err)
	}
	a.serve(t)
	if _, err := l.tryJoin(t, a, "b"); err == nil || !strings.Contains(err.Error(), "no pools") {
		t.Errorf("a host joins without pools: %v", err)
	}
	a.stop(t)
	c.Pools = pools
	if err := h.writeConfig(c); err != nil {
		t.Fatal(err)
	}
	a.serve(t)
	if got := l.join(t, a, "b").Ranges; len(got) != 1 {
		t.Errorf("with pools, the host has %v", got)
	}
}

// TestPoolsOfOneFamily: a host has one range of each family. With two pools of one in config.json,
// which people write, hosts would get ranges that they cannot use: weir-store does not start.
func TestPoolsOfOneFamily(t *testing.T) {
	l := newLab(t)
	a := l.init(t)
	h := home(a.dir)
	c, err := h.config()
	if err != nil {
		t.Fatal(err)
	}
	more, err := parsePools([]string{"10.48.0.0/12:24"})
	if err != nil {
		t.Fatal(err)
	}
	c.Pools = append(c.Pools, more...)
	if err := h.writeConfig(c); err != nil {
		t.Fatal(err)
	}
	said := a.fails(t, "serve")
	for _, want := range []string{configFile, "10.48.0.0/12", "one range of IPv4"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in: %s", want, said)
		}
	}
}
