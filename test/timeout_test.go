package test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// bannedRules refuse the members of a table, also in connections that are open.
const bannedRules = `table banned create
add 1 deny ip from table(banned) to any in
add 2 check-state
add 3 allow tcp from any to me 80 setup keep-state
`

// left returns what a member of the table has left.
func (p *pair) left(t *testing.T, prefix string) (time.Duration, bool) {
	t.Helper()
	var all api.Tables
	p.json(&all, "fw", "table", "banned", "list")
	for _, e := range all.Tables[0].Entries {
		if e.Prefix == prefix && e.LeftSeconds != nil {
			return time.Duration(*e.LeftSeconds * float64(time.Second)), true
		}
	}
	return 0, false
}

// TestTimeouts: a member with a timeout, added over the API by curl, is refused by the kernel until
// its time is over. That is on time although the agent was killed and came back.
func TestTimeouts(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80)
	p.start("--iface", "eth0", "--rules", p.file("banned.rules", bannedRules))
	reach(t, p.client, "http://10.66.0.1/")
	const most = 8 * time.Second
	began := time.Now()
	out, err := exec.Command("curl", "-sf", "--unix-socket",
		filepath.Join(p.root, "run/weir/weir.sock"),
		"-d", fmt.Sprintf(`{"line": "table banned add 10.66.0.2 timeout %s"}`, most),
		"http://localhost/v1/do").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "added: 10.66.0.2/32") {
		t.Fatalf("curl: %v, %s", err, out)
	}
	added := time.Now()
	p.weir("fw", "table", "banned", "add", "fd66::2", "timeout", "1h")
	refuse(t, p.client, "http://[fd66::1]/")
	p.kill()
	refuse(t, p.client, "http://[fd66::1]/")
	p.start("--iface", "eth0", "--rules", filepath.Join(p.root, "banned.rules"))
	// The time began before added, and what is left is looked up after asked.
	asked := time.Now()
	if left, ok := p.left(t, "10.66.0.2/32"); ok && left > most-asked.Sub(added)+time.Second {
		t.Errorf("of %v are left %v after %v", most, left, asked.Sub(added))
	}
	if text := p.weir("fw", "table", "banned", "list"); !strings.Contains(text,
		"fd66::2/128 0 timeout 5") {
		t.Errorf("listed as %q", text)
	}
	eventually(t, "the member ends", func() error {
		_, err := curl(p.client, "http://10.66.0.1/")
		return err
	})
	if took := time.Since(began); took < most {
		t.Errorf("the member ended after %v", took)
	}
	refuse(t, p.client, "http://[fd66::1]/")
	m := p.scrape()
	if m["weir_table_timed_members"] != 1 || m["weir_table_timeouts_total"] > 1 {
		t.Errorf("metrics: %v members, %v ended", m["weir_table_timed_members"],
			m["weir_table_timeouts_total"])
	}
}

const jail = `[DEFAULT]
usedns = no
[login]
enabled = true
filter = login
logpath = %[1]s/log
backend = polling
findtime = 600
maxretry = 2
bantime = 600
action = weir[table=banned, weir="%[2]s --root %[1]s --bpffs %[3]s"]
[forever]
enabled = true
filter = login
logpath = %[1]s/log2
backend = polling
maxretry = 2
bantime = -1
action = weir[table=forever, weir="%[2]s --root %[1]s --bpffs %[3]s"]
[years]
enabled = true
filter = login
logpath = %[1]s/log2
backend = polling
maxretry = 2
bantime = 63072000
action = weir[table=years, weir="%[2]s --root %[1]s --bpffs %[3]s"]
`

const fail2banConf = `[Definition]
loglevel = INFO
logtarget = %[1]s/fail2ban.log
syslogsocket = auto
socket = %[1]s/f2b.sock
pidfile = %[1]s/f2b.pid
dbfile = None
dbpurgeage = 1d
dbmaxmatches = 10
[Thread]
stacksize = 0
`

// fail2ban is one that runs on a server, with our action.
type fail2ban struct {
	*pair
	dir string // configuration
}

func startFail2ban(t *testing.T, p *pair) *fail2ban {
	t.Helper()
	f := &fail2ban{p, filepath.Join(p.root, "fail2ban")}
	p.file("fail2ban/fail2ban.conf", fmt.Sprintf(fail2banConf, p.root))
	p.file("fail2ban/jail.conf", fmt.Sprintf(jail, p.root, weir, p.bpffs))
	p.file("fail2ban/filter.d/login.conf",
		"[Definition]\nfailregex = ^ failed login from <HOST>$\n")
	p.file("fail2ban/action.d/.keep", "")
	action, err := filepath.Abs("../dist/fail2ban/weir.conf")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(action, f.dir+"/action.d/weir.conf"); err != nil {
		t.Fatal(err)
	}
	server := p.server.Command("fail2ban-server", "-c", f.dir, "-f", "start")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Kill()
		server.Wait()
		if t.Failed() {
			out, _ := os.ReadFile(p.root + "/fail2ban.log")
			t.Logf("fail2ban:\n%s", out)
		}
	})
	eventually(t, "the jails are there", func() error {
		return errors.Join(f.client("status", "login"), f.client("status", "forever"),
			f.client("status", "years"))
	})
	return f
}

func (f *fail2ban) client(args ...string) error {
	out, err := f.server.Command("fail2ban-client", append([]string{"-c", f.dir},
		args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("fail2ban-client %v: %w: %s", args, err, out)
	}
	return nil
}

// failedLogins writes two lines about each address into a log.
func failedLogins(t *testing.T, log string, addresses ...string) {
	t.Helper()
	for _, a := range addresses {
		line := time.Now().Format("2006-01-02 15:04:05") + " failed login from " + a + "\n"
		appendTo(t, log, line+line)
	}
}

// TestLongFail2ban: fail2ban with our action file bans who fails to log in, for the ban's time, and
// lifts bans.
func TestLongFail2ban(t *testing.T) {
	t.Parallel()
	need(t, "fail2ban-server", "fail2ban-client", "nginx", "curl")
	p := newPair(t)
	nginx(t, p.server, 80)
	p.start("--iface", "eth0", "--rules", p.file("banned.rules", bannedRules))
	log, log2 := p.file("log", ""), p.file("log2", "")
	f := startFail2ban(t, p)
	reach(t, p.client, "http://10.66.0.1/")
	failedLogins(t, log, "10.66.0.2", "fd66::2")
	eventually(t, "both addresses are banned", func() error {
		for _, a := range []string{"10.66.0.2/32", "fd66::2/128"} {
			if left, ok := p.left(t, a); !ok || left <= 0 || left > 10*time.Minute {
				return fmt.Errorf("%s: %t, %v left", a, ok, left)
			}
		}
		return nil
	})
	refuse(t, p.client, "http://10.66.0.1/")
	refuse(t, p.client, "http://[fd66::1]/")
	p.weir("fw", "table", "banned", "delete", "fd66::2") // has ended already
	for _, a := range []string{"10.66.0.2", "fd66::2"} {
		if err := f.client("set", "login", "unbanip", a); err != nil {
			t.Error(err)
		}
	}
	reach(t, p.client, "http://10.66.0.1/")
	failedLogins(t, log2, "192.0.2.1")
	for _, table := range []string{"forever", "years"} { // longer than a timeout can be
		eventually(t, "an address is banned without a timeout", func() error {
			if out := p.weir("fw", "table", table, "list"); out != "192.0.2.1/32 0\n" {
				return fmt.Errorf("%s: %q", table, out)
			}
			return nil
		})
	}
	text, err := os.ReadFile(p.root + "/fail2ban.log")
	if err != nil {
		t.Fatal(err)
	}
	for complaint := range strings.Lines(string(text)) {
		// but of the question whether the jails are there, asked before the jail was there
		if strings.Contains(complaint, "ERROR") && !strings.Contains(complaint, "UnknownJail") {
			t.Errorf("fail2ban complains: %s", complaint)
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(text)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
