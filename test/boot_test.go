package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// machine is a systemd that was booted in a namespace, testdata/deb/boot.
type machine struct {
	t      *testing.T
	node   *nstest.Node
	nsp    int    // process id of the script
	init   string // of its init, as seen from here
	done   <-chan error
	output bytes.Buffer
}

// boot boots a machine that has some files in /srv, of this machine's release of Debian, or of the
// one in the root file system that WEIR_ROOT names.
func boot(t *testing.T, node *nstest.Node, files ...string) *machine {
	t.Helper()
	return bootRelease(t, node, "", files...)
}

// bootRelease is boot with a root file system.
func bootRelease(t *testing.T, node *nstest.Node, root string, files ...string) *machine {
	t.Helper()
	m := &machine{t: t, node: node}
	cmd := node.Command("unshare",
		append([]string{"-m", "testdata/deb/boot", t.TempDir()}, files...)...)
	if root != "" {
		cmd.Env = append(os.Environ(), "WEIR_ROOT="+root)
	}
	cmd.Stdout, cmd.Stderr = &m.output, &m.output
	m.done = background(t, cmd)
	m.nsp = cmd.Process.Pid
	t.Cleanup(func() {
		if m.init != "" {
			m.try("systemctl", "start", "--no-block", "poweroff.target")
		}
		select {
		case <-m.done:
		case <-time.After(testTimeout):
			t.Errorf("the machine does not end: %s", m.output.String())
			if pid, err := strconv.Atoi(m.init); err == nil {
				syscall.Kill(pid, syscall.SIGKILL) // everything inside goes with it
			}
		}
	})
	m.running("")
	return m
}

// running waits until the machine has booted, with another init than before.
func (m *machine) running(before string) {
	m.t.Helper()
	eventually(m.t, "the machine runs", func() error {
		if m.init = m.findInit(m.nsp); m.init == "" || m.init == before {
			return fmt.Errorf("no init: %s", m.output.String())
		}
		out, err := m.try("systemctl", "is-system-running")
		if err != nil {
			failed, _ := m.try("systemctl", "--no-pager", "--failed")
			return fmt.Errorf("%s\n%s", out, failed)
		}
		return nil
	})
}

// findInit looks among the descendants of a process for one that is the first of its namespace.
func (m *machine) findInit(pid int) string {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return ""
	}
	for c := range strings.FieldsSeq(string(children)) {
		status, err := os.ReadFile("/proc/" + c + "/status")
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(status), "NSpid:")
		line, _, _ := strings.Cut(rest, "\n")
		if ids := strings.Fields(line); len(ids) > 1 && ids[len(ids)-1] == "1" {
			return c
		}
		n, _ := strconv.Atoi(c)
		if found := m.findInit(n); found != "" {
			return found
		}
	}
	return ""
}

// try runs a command inside.
func (m *machine) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	enter := []string{"-t", m.init, "-m", "-p", "-u", "-i", "-n", "-C", "env", "-i",
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"}
	out, err := exec.CommandContext(ctx, "nsenter", append(enter, args...)...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a command inside that must succeed.
func (m *machine) run(args ...string) string {
	m.t.Helper()
	out, err := m.try(args...)
	if err != nil {
		log, _ := m.try("journalctl", "-b", "-u", "weir", "--no-pager", "-n", "30")
		m.t.Fatalf("%s: %v\n%s\n%s", strings.Join(args, " "), err, out, log)
	}
	return out
}

func (m *machine) property(unit, name string) string {
	m.t.Helper()
	return m.run("systemctl", "show", "-P", name, unit)
}

// bootConfig are commands that configure the package: rules for both directions of its traffic, and
// a watchdog that is quick.
const bootConfig = `echo 'OPTIONS="--iface eth*"' >/etc/default/weir; mkdir -p /etc/weir; cat >/etc/weir/rules <<END
add check-state
add allow tcp from any to me 80 setup keep-state
add allow icmp from any to any
add allow udp from any to any 51820 via eth0
add allow tcp from any to 10.88.1.0/24 80 setup keep-state
END
printf '[pods]\nranges = ["10.88.1.0/24"]\n[overlay]\n' >/etc/weir/weir.toml
mkdir -p /etc/systemd/system/weir.service.d; printf '[Service]\nWatchdogSec=5\n' >/etc/systemd/system/weir.service.d/fast.conf; systemctl daemon-reload`

// bootTraffic is what the machine lets in and refuses: one open connection, and probes of a closed
// port.
type bootTraffic struct {
	t      *testing.T
	client *nstest.Node
	open   net.Conn
	closed *prober
}

// continues wants the connection to continue and the port to be closed.
func (b *bootTraffic) continues(when string) {
	b.t.Helper()
	b.open.SetDeadline(time.Now().Add(testTimeout))
	fmt.Fprint(b.open, "hello")
	if _, err := io.ReadFull(b.open, make([]byte, 5)); err != nil {
		b.t.Errorf("%s: %v", when, err)
	}
	b.closed.quiet(b.t, when)
}

// TestLongPackageBooted: on a machine with a running systemd the package installs, starts when it
// is enabled, and is watched. It leaves traffic flowing and protected when it stops. It enforces
// the rules from the boot on before the network is up, and is removed without a trace.
func TestLongPackageBooted(t *testing.T) {
	need(t, "dpkg-deb", "unshare", "systemd-nspawn", "nginx", "curl", "setpriv")
	t.Parallel()
	lab := nstest.New(t)
	server, client := lab.Node("server"), lab.Node("client")
	lab.Join(server, "eth0", "10.66.0.1/24", client, "eth0", "10.66.0.2/24")
	old, next := packages(t)
	// Who listens does so from outside the machine, in its network namespace: boots do not end it.
	web, err := server.Listen("tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer web.Close()
	go nstest.Echo(web)
	closed := newProber(t, server, client)
	if err := closed.wait(1); err != nil {
		t.Fatalf("without Weir the closed port is open, but %v: this test could not fail", err)
	}

	m := boot(t, server, old, next)
	m.install(old)
	closed.begin()
	conn, err := client.DialContext(t.Context(), "tcp", "10.66.0.1:80")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	b := &bootTraffic{t: t, client: client, open: conn, closed: closed}
	b.continues("while it runs")
	m.restarted("STOP", "while the agent hangs", b)
	m.restarted("KILL", "after a crash", b)
	m.run("systemctl", "reload", "weir")
	m.run("systemctl", "stop", "weir")
	b.continues("after stop")
	m.run("systemctl", "start", "weir")
	b.continues("after start")
	m.confined(client)
	b.continues("with containers and a peer")
	m.upgrade(next)
	b.continues("after the upgrade")
	m.reboot(server, b)
	m.faultyBoots(client, closed)
	m.failedStarts(closed)
	m.purge(closed)
}

// install installs a package, which does not start the unit, and enables it.
func (m *machine) install(file string) {
	t := m.t
	t.Helper()
	m.run("dpkg", "--no-triggers", "-i", "/srv/"+filepath.Base(file))
	if out, _ := m.try("systemctl", "is-active", "weir"); out != "inactive" {
		t.Errorf("after the installation the unit is %s: it was not enabled", out)
	}
	m.run("sh", "-c", bootConfig)
	m.run("systemctl", "enable", "--now", "weir")
	if out := m.run("weir", "status"); !strings.Contains(out, "healthy") {
		t.Errorf("the unit is started, the node is %s", out)
	}
	if m.property("weir", "NotifyAccess") != "main" || m.property("weir", "WatchdogUSec") != "5s" {
		t.Error("systemd does not listen to the node")
	}
}

// restarted sends the agent a signal and waits until systemd has started another one. Traffic
// continues before and after that.
func (m *machine) restarted(signal, when string, b *bootTraffic) {
	m.t.Helper()
	first := m.property("weir", "MainPID")
	m.run("systemctl", "kill", "--signal="+signal, "--kill-whom=main", "weir")
	b.continues(when)
	eventually(m.t, when+" systemd restarts the agent", func() error {
		if again := m.property("weir", "MainPID"); again == first ||
			m.property("weir", "NRestarts") == "0" || m.property("weir", "SubState") != "running" {
			return fmt.Errorf("%s is %s", again, m.property("weir", "SubState"))
		}
		return nil
	})
	b.continues(when + ", restarted")
}

// upgrade installs the next package, which leaves the unit running and enabled.
func (m *machine) upgrade(file string) {
	t := m.t
	t.Helper()
	m.run("dpkg", "--no-triggers", "--force-confold", "-i", "/srv/"+filepath.Base(file))
	if out := m.run("dpkg-query", "-Wf", "${Version}", "weir"); out != "99" {
		t.Errorf("after the upgrade version %s is there", out)
	}
	if m.property("weir", "SubState") != "running" ||
		m.property("weir", "UnitFileState") != "enabled" {
		t.Error("the upgrade has stopped the unit")
	}
}

// reboot boots the machine: the interface is down until the network comes up, and the programs of
// the last boot are gone.
func (m *machine) reboot(server *nstest.Node, b *bootTraffic) {
	t := m.t
	link := server.Link("eth0")
	if err := server.Netlink().SetLinkDown(link.Index); err != nil {
		t.Fatal(err)
	}
	before := m.init
	m.try("systemctl", "start", "--no-block", "reboot.target")
	m.running(before)
	if stamp := func(unit string) int {
		n, _ := strconv.Atoi(m.property(unit, "ActiveEnterTimestampMonotonic"))
		return n
	}; stamp("weir") == 0 || stamp("weir") > stamp("net.service") {
		t.Errorf("weir is active at %d, the network at %d", stamp("weir"), stamp("net.service"))
	}
	again, err := b.client.DialContext(t.Context(), "tcp", "10.66.0.1:80")
	if err != nil {
		t.Errorf("after the boot: %v", err)
	} else {
		again.Close()
	}
	b.closed.quiet(t, "at boot")
}

// purge removes the package: nothing guards the closed port any more, and nothing is left.
func (m *machine) purge(closed *prober) {
	t := m.t
	t.Helper()
	m.run("dpkg", "--no-triggers", "-P", "weir")
	if err := closed.wait(1); err != nil {
		t.Errorf("after the removal: %v", err)
	}
	left := m.run("sh", "-c",
		`systemctl list-units --all --no-legend --plain "weir*"; ls -d /sys/fs/bpf/weir /run/weir /var/lib/weir /usr/bin/weir* /etc/default/weir* /etc/systemd/system/*/weir.service 2>/dev/null; true`)
	if left != "" {
		t.Errorf("what is left:\n%s", left)
	}
}

// confined: the unit has few rights, and containers, a peer and the proxy work all the same. The
// peer is a node beside the machine.
func (m *machine) confined(beside *nstest.Node) {
	t := m.t
	t.Helper()
	if out, err := m.try("systemd-analyze", "security", "--no-pager", "--threshold=30",
		"weir.service"); err != nil {
		t.Errorf("the unit is exposed more than 3.0: %s", out[max(0, len(out)-200):])
	}
	as := func(groups string, args ...string) (string, error) {
		return m.try(append([]string{"setpriv", "--reuid=nobody", "--regid=nogroup", groups,
			"weir"}, args...)...)
	}
	if out, err := as("--groups=weir", "status"); err != nil {
		t.Errorf("a member of group weir cannot read: %s", out)
	}
	if out, err := as("--groups=weir", "fw", "add", "allow", "ip", "from", "any", "to",
		"any"); err == nil || !strings.Contains(out, "is read-only") {
		t.Errorf("a member of group weir changes the rules: %s", out)
	}
	if out, err := as("--clear-groups", "status"); err == nil ||
		!strings.Contains(out, "not permitted") {
		t.Errorf("any user may read: %s", out)
	}

	m.run("sh", "-ec", `ip netns add web
weir pod attach --name web --publish 8080:80 /run/netns/web
cat >/srv/nginx.conf <<END
daemon off; error_log stderr; pid /tmp/nginx.pid; events {}
http { access_log off; server { listen 80; location / { return 200 "from the container"; } } }
END
systemd-run -q --unit=web ip netns exec web nginx -c /srv/nginx.conf
echo 'OPTIONS="--metrics 127.0.0.1:1081"' >/etc/default/weir-proxy
systemctl start weir-proxy`)
	answers := func(what string, query func() (string, error)) {
		t.Helper()
		eventually(t, what, func() error {
			out, err := query()
			if err == nil && !strings.Contains(out, "from the container") {
				err = fmt.Errorf("%q", out)
			}
			return err
		})
	}
	pod := m.run("sh", "-c",
		`weir pod list -j | grep -o '10\.88\.1\.[0-9]*' | grep -v '\.1$' | head -1`)
	answers("the proxy reaches the container", func() (string, error) {
		return m.try("curl", "-sS", "-m5", "-x", "http://127.0.0.1:1080", "http://"+pod+"/")
	})
	answers("the published port", func() (string, error) {
		return curl(beside, "http://10.66.0.1:8080/")
	})

	other := newAgentNode(t, beside)
	other.file("etc/weir/weir.toml", "[pods]\nranges = [\"10.88.2.0/24\"]\n[overlay]\n")
	other.start("--rules", other.file("etc/weir/rules", "add allow ip from any to any"))
	m.run("weir", "peer", "add", "beside", "--key", strings.TrimSpace(other.weir("peer", "key")),
		"--endpoint", "10.66.0.2:51820", "--pods", "10.88.2.0/24")
	other.weir("peer", "add", "machine", "--key", m.run("weir", "peer", "key"), "--endpoint",
		"10.66.0.1:51820", "--pods", "10.88.1.0/24")
	answers("the container, through the tunnel", func() (string, error) {
		return curl(beside, "http://"+pod+"/")
	})
	if out, err := m.try("weir", "status"); err != nil {
		t.Errorf("with containers and a peer the node is %s", out)
	}
	m.run("systemctl", "restart", "weir")
	answers("the container, through the tunnel of the next agent", func() (string, error) {
		return curl(beside, "http://"+pod+"/")
	})
	m.run("sh", "-ec",
		"systemctl stop web weir-proxy; weir pod detach web; ip netns del web; weir peer remove beside")
	other.weir("down")
	other.wait()
}

// failedStarts starts the unit with files that it cannot use, on a host without rules. The host is
// closed, and as soon as the files are right the unit runs, however often it has failed.
func (m *machine) failedStarts(closed *prober) {
	m.t.Helper()
	m.run("sh", "-c",
		"systemctl stop weir; weir down; cp /etc/weir/rules /srv/rules; rm -rf /var/lib/weir; "+
			"echo 'add nonsense' >/etc/weir/rules; systemctl start weir")
	if out, _ := m.try("weir", "status"); !strings.Contains(out, "locked down") {
		m.t.Errorf("with rules that cannot be used the node is %s", out)
	}
	closed.begin()
	closed.quiet(m.t, "with rules that cannot be used")
	m.run("sh", "-c",
		"systemctl stop weir; weir down; cp /srv/rules /etc/weir/rules; echo nonsense=1 "+
			">/etc/weir/weir.toml")
	m.try("systemctl", "start", "weir")
	eventually(m.t, "the unit has failed more often than systemd's own limit",
		func() error {
			if n, _ := strconv.Atoi(m.property("weir", "NRestarts")); n < 7 {
				return fmt.Errorf("%d times", n)
			}
			return nil
		})
	closed.begin()
	closed.quiet(m.t, "with settings that cannot be used")
	m.run("rm", "/etc/weir/weir.toml")
	eventually(m.t, "the unit runs again", func() error {
		if s := m.property("weir", "SubState"); s != "running" {
			return fmt.Errorf("it is %s", s)
		}
		return nil
	})
	if out := m.run("weir", "status"); !strings.Contains(out, "healthy") {
		m.t.Errorf("after all the node is %s", out)
	}
	closed.quiet(m.t, "after failed starts")
}
