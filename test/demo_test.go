package test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/weirnet/weir/agent/demo"
	"github.com/weirnet/weir/internal/nstest"
)

// TestLongDemo: the demo shows what the rules say, and leaves nothing behind.
func TestLongDemo(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	if _, err := storeProgram(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(weir, "demo")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("weir demo: %v\n%s", err, out)
	}
	if left := leftBy(t, cmd.Process.Pid); left != "" {
		t.Errorf("the demo leaves something:\n%s", left)
	}
	for _, line := range []string{
		`    add 1 check-state`,
		`    add allow tcp from any to me 80 setup keep-state`,
		`client   GET http://10\.77\.1\.1:80/ +passed +200 OK: hello from port 80 of the server +101  allow tcp from any to me 80 setup keep-state`,
		`scanner  GET http://\[fd77:2::1\]:80/ +passed +200 OK: .* +101  allow tcp .*`,
		`client   GET http://10\.77\.1\.1:8080/ +passed +200 OK: .* +150  allow tcp from table\(clients\) to me 8080 setup keep-state`,
		`scanner  GET http://10\.77\.2\.1:8080/ +refused +no answer +501  deny log ip from any to any`,
		`client   GET http://\[fd77:1::1\]:81/ +refused +no answer +501  deny log ip from any to any`,
		`server   GET http://\[fd77:1::2\]:80/ +passed +200 OK: .* +201  allow ip from me to any out keep-state`,
		`00101 +[1-9][0-9]* +[1-9][0-9]* allow tcp from any to me 80 setup keep-state :default`,
		`00501 +[1-9][0-9]* +[1-9][0-9]* deny log ip from any to any`,
		`tcp +10\.77\.1\.2:[0-9]+ +10\.77\.1\.1:80 +established .* 101  default`,
		`web +10\.88\.1\.2,fd00:88:1::2 +app=web`,
		`client +GET http://\[fd00:88:1::2\]:80/ +passed +200 OK: hello from port 80 of the web +left +100  allow tcp from table\(role=client\) to table\(app=web\) 80 .*`,
		`client +GET http://10\.88\.1\.2:81/ +refused +no answer +left +500  deny ip from any to any`,
		`job +GET http://10\.88\.1\.2:80/ +refused +no answer +left +500  deny ip from any to any`,
		`job, now role=client +GET http://10\.88\.1\.2:80/ +passed +200 OK: .* +left +100  allow tcp .*`,
		`client +GET http://10\.88\.2\.2:80/ +passed +200 OK: hello from port 80 of the shop +left +200  allow tcp from table\(role=client\) to table\(other\) .*`,
		`client +GET http://\[fd00:88:2::2\]:80/ +passed +200 OK: hello from port 80 of the shop +left +200  .*`,
		`client +GET http://10\.88\.2\.2:81/ +refused +no answer +right +500  deny ip from any to any`,
		`web +GET http://10\.88\.2\.2:80/ +refused +no answer +left +500  deny ip from any to any`,
		`right +10\.88\.2\.0/24,fd00:88:2::/120 +10\.78\.0\.2:51820 +[0-9]+s ago .*`,
		`  10\.78\.0\.[12]:51820 > 10\.78\.0\.[12]:51820: udp, [0-9]+ bytes`,
		`  WireGuard [1-9][0-9]+ packets, [0-9]+ bytes; ARP and neighbour discovery [0-9]+; anything else 0; readable answers 0`,
		`  hub# weir fw load --on role:db db\.rules`,
		`    version 1\.3 enforced on 3 of 3 hosts in [0-9]+ ms`,
		`    weir: fw confirm: no report since they switched: db1`,
		`    cluster: host db1 of 3, rules version 1\.3`,
		`web +GET http://10\.64\..*:5432/ +passed +200 OK: hello from port 5432 of the db +web1 +1100  allow tcp .*`,
		`job +GET http://10\.64\..*:5432/ +refused +no answer +web1 +60000  deny log ip from any to any`,
		`web, during the trial +GET .* +refused +no answer +web1 +20  deny ip from any to table\(app=db\)`,
		`web, after the trial +GET .* +passed +200 OK: .* +web1 +1100  allow tcp .*`,
		`All 27 answers are as the rules require\. The demo has removed all that it made\.`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).Match(out) {
			t.Errorf("the demo does not print %s", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
}

// TestLongDemoJSON checks the demo by its numbers.
func TestLongDemoJSON(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	if _, err := storeProgram(); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(weir, "demo", "-j").Output()
	if err != nil {
		t.Fatalf("weir demo -j: %v\n%s", err, out)
	}
	var r demo.Result
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	if r.Version != 1 || len(r.Visits) != 14 || len(r.Wrong) != 0 || len(r.States) < 6 ||
		len(r.Rules) != 8 ||
		len(r.Containers.Visits) != 5 || len(r.Containers.Pods) != 3 ||
		len(r.TwoHosts.Visits) != 4 || len(r.TwoHosts.Peers) != 1 ||
		r.TwoHosts.Wire.WireGuard < 10 || len(r.TwoHosts.Wire.Others) != 0 ||
		r.TwoHosts.Wire.Readable != 0 || r.Cluster == nil || len(r.Cluster.Visits) != 4 ||
		len(r.Cluster.Files) != 3 {
		t.Errorf("%+v", r)
	}
}

// endlessDemo returns a weir whose demo does not end: its store is stopped once it runs, and there
// is a file then.
func endlessDemo(t *testing.T) (program, stopped string) {
	t.Helper()
	store, err := storeProgram()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp(filepath.Dir(weir), "endless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program, stopped = filepath.Join(dir, "weir"), filepath.Join(dir, "stopped")
	if err := os.Link(weir, program); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`#!/bin/sh
[ "$1" != serve ] || (
	until [ -S "$3/etcd/client" ]; do sleep .05; done
	kill -STOP $$
	touch %s
) &
exec %s "$@"
`, stopped, store)
	if err := os.WriteFile(filepath.Join(dir, "weir-store"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return program, stopped
}

// TestLongDemoInterrupted: an interrupt in the middle leaves nothing either, also while the store
// runs.
func TestLongDemoInterrupted(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	program, stopped := endlessDemo(t)
	nodeOf := func(dir string) func(pid int) error {
		return func(pid int) error {
			all, _ := filepath.Glob(filepath.Join(os.TempDir(), fmt.Sprintf("weir-%d-demo-*", pid),
				dir))
			if len(all) != 1 {
				return fmt.Errorf("its directory is none of %q", all)
			}
			return exec.Command(weir, "--root", all[0], "status").Run()
		}
	}
	for _, moment := range []struct {
		what    string
		reached func(pid int) error
	}{
		{"it has made something", func(int) error { return nil }},
		{"the server's node runs", nodeOf("")}, {"the node of a host runs", nodeOf("right")},
		{"the store runs", func(int) error { _, err := os.Stat(stopped); return err }},
	} {
		cmd := exec.Command(program, "demo")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, moment.what, func() error {
			if leftBy(t, cmd.Process.Pid) == "" {
				return errors.New("there is nothing that this test can see")
			}
			return moment.reached(cmd.Process.Pid)
		})
		cmd.Process.Signal(syscall.SIGINT)
		if err := cmd.Wait(); err == nil {
			t.Errorf("interrupted when %s, the demo reports success", moment.what)
		}
		if left := leftBy(t, cmd.Process.Pid); left != "" {
			t.Errorf("interrupted when %s, the demo leaves something:\n%s", moment.what, left)
		}
	}
}

// leftBy lists what a demo with this process id has made on this machine: everything that it makes
// carries its number.
func leftBy(t *testing.T, pid int) string {
	t.Helper()
	mark := fmt.Sprintf("weir-%d-", pid)
	var b strings.Builder
	for _, dir := range []string{os.TempDir(), "/run/netns"} {
		entries, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), mark) {
				fmt.Fprintf(&b, "%s/%s\n", dir, e.Name())
			}
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, mark) {
			b.WriteString(line)
		}
	}
	if processes, err := exec.Command("pgrep", "-fa", mark).Output(); err == nil {
		b.Write(processes)
	}
	return b.String()
}
