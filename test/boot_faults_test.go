package test

import (
	"context"
	"fmt"
	"strings"

	"github.com/weirnet/weir/internal/nstest"
)

// faultyBoot is a boot with a fault.
type faultyBoot struct {
	what          string
	spoil, repair string // what the shell does
	reported      string // what the status reports; "" for nothing
	dead          bool   // the agent cannot start: the host is closed
}

// dropIn adds a line to the unit, and back removes it.
const (
	dropIn = `printf '[Service]\n%s\n' >/etc/systemd/system/weir.service.d/worst.conf; systemctl daemon-reload`
	back   = `rm /etc/systemd/system/weir.service.d/worst.conf; systemctl daemon-reload`
)

// state restores the node's directory, after files there were damaged.
const state = `rm -rf /var/lib/weir/*; cp -a /srv/state/. /var/lib/weir/`

var faultyBoots = []faultyBoot{
	{what: "full disk", reported: "no space left",
		spoil:  `mount -t tmpfs -o size=4m full /var/lib/weir; cp -a /srv/state/. /var/lib/weir/; dd if=/dev/zero of=/var/lib/weir/filler bs=4k 2>&1 || true`,
		repair: `umount /var/lib/weir`},
	{what: "read-only /var", reported: "read-only",
		spoil: `mount --bind /var /var; mount -o remount,bind,ro /var`, repair: `umount -l /var`},
	// The kernel's error at the end of a write when a quota is used up.
	{what: "quota", reported: "quota exceeded",
		spoil:  fmt.Sprintf(dropIn, `SystemCallFilter=~fsync:EDQUOT fdatasync:EDQUOT`),
		repair: back},
	{what: "hardly any descriptors", dead: true, spoil: fmt.Sprintf(dropIn, `LimitNOFILE=24`),
		repair: back},
	{what: "few descriptors", dead: true, spoil: fmt.Sprintf(dropIn, `LimitNOFILE=64`),
		repair: back},
	{what: "files empty", reported: ".damaged-",
		spoil: `find /var/lib/weir -type f -exec truncate -s0 {} +`, repair: state},
	{what: "files cut", reported: ".damaged-",
		spoil:  `find /var/lib/weir -type f | while read f; do truncate -s $(($(stat -c %s $f) * 3 / 8)) $f; done`,
		repair: state},
	{what: "files of garbage", reported: ".damaged-",
		spoil:  `find /var/lib/weir -type f | while read f; do head -c 200 /dev/urandom >$f; done`,
		repair: state},
	{what: "files of a later version", reported: ".newer-",
		spoil:  `sed -Ei 's/^(# weir saved rules |.*"version": )[0-9]+/\199/i' $(find /var/lib/weir -type f -name '*s*ed' -o -name '*.json')`,
		repair: state},
	{what: "another process holds locks",
		spoil:  `systemd-run -q --unit=hold --uid=nobody flock /run/weir sleep 600; sleep 0.2`,
		repair: `systemctl stop hold`},
	{what: "another program's interface has the tunnel's name", reported: "weir0",
		spoil: `ip link add weir0 type veth peer name weir0b`, repair: `ip link del weir0`},
	{what: "no rules that can be read", reported: "locked down", dead: true,
		spoil:  `mv /etc/weir/rules /srv/held; echo garbage >/var/lib/weir/rules.saved`,
		repair: `mv /srv/held /etc/weir/rules; ` + state},
}

// faultyBoots starts the unit as a boot does, with nothing in the kernel, with one fault after the
// other. What is denied never gets in, and what is allowed does when there is an agent. The status
// reports the fault, and after the repair the node is healthy. A peer's name is never found: there
// is no DNS.
func (m *machine) faultyBoots(client *nstest.Node, closed *prober) {
	t := m.t
	t.Helper()
	m.run("weir", "peer", "add", "far", "--key", strings.Repeat("B", 43)+"=", "--endpoint",
		"nowhere.example:51820", "--pods", "10.99.0.0/24")
	m.run("weir", "fw", "add", "5", "count", "ip", "from", "any", "to", "any")
	m.run("sh", "-ec", "systemctl stop weir; weir down --keep; cp -a /var/lib/weir /srv/state")
	web := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		c, err := client.DialContext(ctx, "tcp", "10.66.0.1:80")
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, day := range faultyBoots {
		t.Log(day.what)
		m.run("sh", "-ec", day.spoil)
		m.try("systemctl", "start", "weir")
		if day.dead {
			eventually(t, day.what+": the host is closed", func() error {
				closed.begin()
				return closed.silent()
			})
		}
		closed.begin()
		closed.quiet(t, day.what)
		if !day.dead {
			if err := web(); err != nil {
				t.Errorf("%s: %v", day.what, err)
			}
		}
		if day.reported != "" {
			if out, _ := m.try("weir", "status"); !strings.Contains(out, day.reported) {
				t.Errorf("%s: the status is %s", day.what, out)
			}
		}
		m.try("systemctl", "stop", "weir")
		m.run("sh", "-ec", day.repair)
		m.run("sh", "-ec",
			"systemctl reset-failed weir; systemctl start weir; weir status --wait 1m; systemctl "+
				"stop weir; weir down --keep; "+state)
	}
	m.run("sh", "-ec", "systemctl start weir; weir peer remove --release far; weir fw delete 5")
}
