package test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const journaldConf = `[Journal]
Storage=volatile
ReadKMsg=no
Audit=no
ForwardToSyslog=no
ForwardToWall=no
`

// inJournal runs a program in a mount namespace in which /run/systemd/journal is a directory of the
// test.
const inJournal = `mount --bind "$0/run" /run/systemd/journal
mount --bind "$0/log" /run/log/journal
mount --bind "$0/conf" /etc/systemd/journald.conf
exec "$@"`

// startJournald runs a journald of the test, and has a node's agent, once it is started, log there.
func startJournald(t *testing.T, p *pair) (dir string) {
	t.Helper()
	const systemd = "/lib/systemd/systemd-journald"
	need(t, systemd, "journalctl")
	for _, place := range []string{"/run/systemd/journal", "/run/log/journal"} {
		directory(t, place)
	}
	dir = filepath.Dir(p.file("journal/conf", journaldConf))
	for _, d := range []string{"run", "log"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	server := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-ec", inJournal, dir,
		systemd)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	})
	eventually(t, "journald listens", func() error {
		_, err := os.Stat(filepath.Join(dir, "run", "socket"))
		return err
	})
	p.within = []string{"unshare", "-m", "--propagation", "slave", "sh", "-ec", inJournal, dir}
	return dir
}

// journalEntries returns the agent's entries that match, at least one.
func journalEntries(dir, match string) (all []map[string]any, err error) {
	out, err := exec.Command("journalctl", "-D", dir+"/log", "-o", "json", "-q",
		"SYSLOG_IDENTIFIER=weir", match).Output()
	for line := range strings.Lines(string(out)) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("no entry with %s", match)
	}
	return all, err
}

// TestLongLogInJournal: what a rule with log matches is in the journal of systemd, with the text of
// the rule in fields. No more than its limit is there, and the rest is counted.
func TestLongLogInJournal(t *testing.T) {
	t.Parallel()
	need(t, "curl")
	p := newPair(t)
	journal := startJournald(t, p)
	p.start("--iface", "eth0", "--config", p.file("weir.toml", "[observe]\nhistory = \"0s\"\n"),
		"--rules", p.file("rules", `add 1 check-state
add 50 allow tcp from any to me 80 setup keep-state
add 100 deny log tcp from any to me 81 // "closed" = here
add 200 deny log logamount 5000 udp from any to me 9
`))
	eventually(t, "the packet is in the journal", func() error {
		curl(p.client, "--max-time", "1", "http://[fd66::1]:81/")
		all, err := journalEntries(journal, "WEIR_DST_PORT=81")
		if err != nil {
			return err
		}
		for name, want := range map[string]string{"WEIR_RULE": "100", "WEIR_ACTION": "deny",
			"WEIR_RULE_TEXT": `deny log tcp from any to me 81 // "closed" = here`,
			"WEIR_SRC":       "fd66::2", "WEIR_DST": "fd66::1", "WEIR_RECV": "eth0",
			"WEIR_PROTO": "tcp", "WEIR_DIRECTION": "in", "WEIR_TCP_FLAGS": "S",
			"_COMM": "weir"} {
			if all[0][name] != want {
				t.Errorf("%s is %q, not %q", name, all[0][name], want)
			}
		}
		if m := fmt.Sprint(all[0]["MESSAGE"]); !strings.HasPrefix(m, "100 deny tcp [fd66::2]:") ||
			!strings.HasSuffix(m, " [fd66::1]:81 in via eth0") {
			t.Errorf("message %q", m)
		}
		return nil
	})
	c, err := p.client.DialContext(t.Context(), "udp", "10.66.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sent, skipped := 0, 0.0
	eventually(t, "every packet is in the journal, or counted", func() error {
		for n := sent + 4000; skipped == 0 && sent < n; sent++ { // until they are too many at once
			if _, err := c.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		m, missed := p.scrape(), missed(t, p)
		written, lost := m["weir_log_entries_total"], m["weir_events_lost_total"]
		skipped = m["weir_log_skipped_total"]
		if skipped == 0 || written < 1000 || written+skipped+lost+float64(missed) < float64(sent) {
			return fmt.Errorf("of %d, %v written, %v left out, %v lost, %d missed", sent, written,
				skipped, lost, missed)
		}
		return nil
	})
}
