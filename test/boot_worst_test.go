package test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// worstDay is a machine on which something is wrong.
type worstDay struct {
	what          string
	spoil, repair string // what the shell does
	told          string // what the status says; "" for nothing
	dead          bool   // the agent cannot start: the host is closed
}

// dropIn gives the unit a line more, and back takes it away.
const (
	dropIn = `printf '[Service]\n%s\n' >/etc/systemd/system/weir.service.d/worst.conf; systemctl daemon-reload`
	back   = `rm /etc/systemd/system/weir.service.d/worst.conf; systemctl daemon-reload`
)

// state puts back what the node's directory had, for who has spoilt files there.
const state = `rm -rf /var/lib/weir/*; cp -a /srv/state/. /var/lib/weir/`

var worstDays = []worstDay{
	{what: "full disk", told: "no space left",
		spoil:  `mount -t tmpfs -o size=4m full /var/lib/weir; cp -a /srv/state/. /var/lib/weir/; dd if=/dev/zero of=/var/lib/weir/filler bs=4k 2>&1 || true`,
		repair: `umount /var/lib/weir`},
	{what: "read-only /var", told: "read-only",
		spoil: `mount --bind /var /var; mount -o remount,bind,ro /var`, repair: `umount -l /var`},
	// What the kernel says at the end of a write when a quota is used up.
	{what: "quota", told: "quota exceeded",
		spoil:  fmt.Sprintf(dropIn, `SystemCallFilter=~fsync:EDQUOT fdatasync:EDQUOT`),
		repair: back},
	{what: "hardly any descriptors", dead: true, spoil: fmt.Sprintf(dropIn, `LimitNOFILE=24`),
		repair: back},
	{what: "few descriptors", dead: true, spoil: fmt.Sprintf(dropIn, `LimitNOFILE=64`),
		repair: back},
	{what: "files empty", told: ".damaged-",
		spoil: `find /var/lib/weir -type f -exec truncate -s0 {} +`, repair: state},
	{what: "files cut", told: ".damaged-",
		spoil:  `find /var/lib/weir -type f | while read f; do truncate -s $(($(stat -c %s $f) * 3 / 8)) $f; done`,
		repair: state},
	{what: "files of garbage", told: ".damaged-",
		spoil:  `find /var/lib/weir -type f | while read f; do head -c 200 /dev/urandom >$f; done`,
		repair: state},
	{what: "files of a later version", told: ".newer-",
		spoil:  `sed -Ei 's/^(# weir saved rules |.*"version": )[0-9]+/\199/i' $(find /var/lib/weir -type f -name '*s*ed' -o -name '*.json')`,
		repair: state},
	{what: "somebody holds locks",
		spoil:  `systemd-run -q --unit=hold --uid=nobody flock /run/weir sleep 600; sleep 0.2`,
		repair: `systemctl stop hold`},
	{what: "a stranger's interface has the tunnel's name", told: "weir0",
		spoil: `ip link add weir0 type veth peer name weir0b`, repair: `ip link del weir0`},
	{what: "no rules that can be read", told: "locked down", dead: true,
		spoil:  `mv /etc/weir/rules /srv/held; echo garbage >/var/lib/weir/rules.saved`,
		repair: `mv /srv/held /etc/weir/rules; ` + state},
}

// worstDays starts the unit as a boot does, with nothing in the kernel, on days on which something
// is wrong: what is denied never gets in, what is allowed does when there is an agent, what is
// wrong is told, and when it is over all is well. A peer's name is never found: there is no DNS.
func (m *machine) worstDays(client *nstest.Node, closed *knocker) {
	t := m.t
	t.Helper()
	m.run("weir", "peer", "add", "far", "--key", strings.Repeat("B", 43)+"=", "--endpoint",
		"nowhere.example:51820", "--pods", "10.99.0.0/24")
	m.run("weir", "fw", "add", "5", "count", "ip", "from", "any", "to", "any")
	m.run("sh", "-ec", "systemctl stop weir; weir down --keep; cp -a /var/lib/weir /srv/state")
	web := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		c, err := client.DialContext(ctx, "tcp", "10.66.0.1:80")
		if err == nil {
			c.Close()
		}
		return err
	}
	for _, day := range worstDays {
		t.Log(day.what)
		m.run("sh", "-ec", day.spoil)
		m.try("systemctl", "start", "weir")
		if day.dead {
			within(t, 60*time.Second, day.what+": the host is closed", func() error {
				closed.arrived.Store(0)
				time.Sleep(50 * time.Millisecond)
				if n := closed.arrived.Load(); n > 0 {
					return fmt.Errorf("%d datagrams arrived", n)
				}
				return nil
			})
		}
		closed.arrived.Store(0)
		closed.quiet(t, day.what)
		if !day.dead {
			if err := web(); err != nil {
				t.Errorf("%s: %v", day.what, err)
			}
		}
		if day.told != "" {
			if out, _ := m.try("weir", "status"); !strings.Contains(out, day.told) {
				t.Errorf("%s: the status is %s", day.what, out)
			}
		}
		m.try("systemctl", "stop", "weir")
		m.run("sh", "-ec", day.repair)
		m.run("sh", "-ec",
			"systemctl reset-failed weir; systemctl start weir; weir status --wait 20s; systemctl "+
				"stop weir; weir down --keep; "+state)
	}
	m.run("sh", "-ec", "systemctl start weir; weir peer remove --release far; weir fw delete 5")
}
