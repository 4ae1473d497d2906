package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestLongPackageChangeFails: an upgrade after which a unit does not start again is complete. A
// removal that is aborted leaves a host that is guarded now and at the next boot.
func TestLongPackageChangeFails(t *testing.T) {
	need(t, "dpkg-deb", "unshare", "systemd-nspawn")
	t.Parallel()
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "10.66.0.1/24", client, "eth0", "10.66.0.2/24")
	old, next := packages(t)
	closed := newProber(t, server, client)
	if err := closed.wait(1); err != nil {
		t.Fatalf("without Weir the closed port is open, but %v: this test could not fail", err)
	}
	m := boot(t, server, old, next, conflicting(t))
	m.install(old)
	closed.begin()

	m.run("sh", "-c", "echo nonsense=1 >>/etc/weir/weir.toml")
	m.run("dpkg", "--no-triggers", "-i", "/srv/"+filepath.Base(next))
	closed.quiet(t, "after an upgrade with settings that cannot be used")
	m.run("sh", "-c", "sed -i '/^nonsense/d' /etc/weir/weir.toml; systemctl restart weir")

	// What weir down removes last is busy: by then nothing guards the host.
	const plugin = "/run/docker/plugins/weir.sock"
	m.run("sh", "-ec", "mkdir -p /run/docker/plugins; touch "+plugin+
		"; mount --bind /dev/null "+plugin)
	m.refused(closed, "dpkg", "--no-triggers", "-r", "weir")
	m.run("sh", "-ec", "umount "+plugin+"; rm "+plugin)
	m.refused(closed, "dpkg", "--no-triggers", "-i", "/srv/conflicting.deb")
	before := m.init
	m.try("systemctl", "start", "--no-block", "reboot.target")
	m.running(before)
	m.guarded(closed, "after a boot")
	m.purge(closed)
}

// refused runs a removal that must fail and leave a guarded host.
func (m *machine) refused(closed *prober, args ...string) {
	m.t.Helper()
	if out, err := m.try(args...); err == nil {
		m.t.Fatalf("%s is done: %s", strings.Join(args, " "), out)
	}
	m.guarded(closed, "after "+strings.Join(args, " "))
}

// guarded wants the unit to run, now and at the next boot.
func (m *machine) guarded(closed *prober, when string) {
	m.t.Helper()
	m.run("weir", "status", "--wait", "1m")
	closed.begin()
	closed.quiet(m.t, when)
	if s := m.property("weir", "SubState"); s != "running" {
		m.t.Errorf("%s: the unit is %s", when, s)
	}
	if s := m.property("weir", "UnitFileState"); s != "enabled" {
		m.t.Errorf("%s: the unit is %s", when, s)
	}
	if out, err := m.try("dpkg", "--verify", "weir"); err != nil {
		m.t.Errorf("%s: %v: %s", when, err, out)
	}
}

// conflicting makes a package in whose favour dpkg removes ours, and which then cannot be unpacked.
func conflicting(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "conflicting")
	script := `mkdir -p "$1/DEBIAN"; printf '%s\n' "Package: conflicting" "Version: 1" \
"Architecture: all" "Maintainer: test <test@weirnet.invalid>" "Conflicts: weir" "Replaces: weir" \
"Provides: weir" "Description: none" >"$1/DEBIAN/control"
printf '#!/bin/sh\nexit 1\n' >"$1/DEBIAN/preinst"; chmod 755 "$1/DEBIAN/preinst"
dpkg-deb --root-owner-group -Znone -b "$1" "$1.deb"`
	cmd := exec.Command("sh", "-ec", script, "-", dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return dir + ".deb"
}
