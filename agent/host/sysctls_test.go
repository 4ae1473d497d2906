package host

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirnet/weir/internal/nstest"
)

// TestDamagedRecordOfSysctls: a start sets it aside, reports it once, and continues with what it
// finds.
func TestDamagedRecordOfSysctls(t *testing.T) {
	host := nstest.New(t).Node("host")
	for _, damaged := range []string{"", "{", "null", "garbage", `{"version": 0}`} {
		record := filepath.Join(t.TempDir(), "state", "sysctls.json")
		if err := os.MkdirAll(filepath.Dir(record), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(record, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		start := func() error {
			return host.Do(func() error { return NewRouter(record).PrepareForwarding(true, false) })
		}
		var damage errNotAsBefore
		if err := start(); !errors.As(err, &damage) {
			t.Errorf("%q: damage is %v", damaged, err)
			continue
		}
		if kept, err := os.ReadFile(damage.aside); err != nil || string(kept) != damaged ||
			!strings.Contains(damage.aside, ".damaged-") {
			t.Errorf("%q: kept as %s is %q, %v", damaged, damage.aside, kept, err)
		}
		if err := start(); err != nil {
			t.Errorf("%q: the next start: %v", damaged, err)
		}
		if err := host.Do(func() error { return RestoreSysctls(record) }); err != nil {
			t.Errorf("%q: the end: %v", damaged, err)
		}
	}
}

// TestSysctlsAreRecordedOnce: the record is of the time before the first start since the boot; a
// damaged one is reported, and the advice works.
func TestSysctlsAreRecordedOnce(t *testing.T) {
	host := nstest.New(t).Node("host")
	record := filepath.Join(t.TempDir(), "state", "sysctls.json")
	value := func() string {
		t.Helper()
		out, err := host.Command("cat", "/proc/sys/net/ipv4/ip_forward").Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	recorded := func(record string) error {
		return NewRouter(record).PrepareForwarding(true, false)
	}
	do := func(f func(string) error) error { return host.Do(func() error { return f(record) }) }
	host.Sysctl("net.ipv4.ip_forward", "0")
	if err := do(recorded); err != nil {
		t.Fatal(err)
	}
	host.Sysctl("net.ipv4.ip_forward", "1")
	if err := do(recorded); err != nil { // the next start
		t.Fatal(err)
	}
	if err := do(RestoreSysctls); err != nil || value() != "0" {
		t.Errorf("ip_forward is %s, %v", value(), err)
	}
	if _, err := os.Stat(record); err == nil {
		t.Error("the record is left")
	}

	// One of another boot says nothing about this one.
	if err := do(recorded); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(record)
	if err != nil {
		t.Fatal(err)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), strings.TrimSpace(string(boot)), "another", 1)
	if err := os.WriteFile(record, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	host.Sysctl("net.ipv4.ip_forward", "1")
	if err := do(RestoreSysctls); err != nil || value() != "1" {
		t.Errorf("of another boot: ip_forward is %s, %v", value(), err)
	}

	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	err = do(RestoreSysctls)
	if err == nil || !strings.Contains(err.Error(), "remove the file") {
		t.Errorf("damaged: %v", err)
	}
	if out, err := exec.Command("rm", record).CombinedOutput(); err != nil { // as it advises
		t.Fatalf("%v %s", err, out)
	}
	if err := do(RestoreSysctls); err != nil {
		t.Errorf("after the advice: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(record), "*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// TestRestoreAfterAKill: one that was killed behind its first step is completed by the next one,
// and forgotten by a start.
func TestRestoreAfterAKill(t *testing.T) {
	host := nstest.New(t).Node("host")
	record := filepath.Join(t.TempDir(), "sysctls.json")
	value := func(key string) string {
		t.Helper()
		out, err := host.Command("cat", "/proc/sys/net/ipv4/"+key).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	do := func(f func() error) {
		t.Helper()
		if err := host.Do(f); err != nil {
			t.Fatal(err)
		}
	}
	start := func() {
		t.Helper()
		do(func() error { _, err := recordSysctls(record); return err })
		host.Sysctl("net.ipv4.ip_forward", "1")
	}
	killed := func() {
		t.Helper()
		var r sysctlRecord
		text, err := os.ReadFile(record)
		if err := errors.Join(err, json.Unmarshal(text, &r)); err != nil {
			t.Fatal(err)
		}
		do(func() error {
			now, err := readSysctls()
			return errors.Join(err, r.begin(record, now))
		})
		host.Sysctl("net.ipv4.ip_forward", "0")
	}
	host.Sysctl("net.ipv4.ip_forward", "0")
	host.Sysctl("net.ipv4.conf.lo.forwarding", "1")
	start()
	killed()
	do(func() error { return RestoreSysctls(record) })
	if got := value("conf/lo/forwarding"); got != "1" {
		t.Errorf("forwarding of the interface is %s", got)
	}
	start()
	killed()
	start()
	host.Sysctl("net.ipv4.ip_forward", "0") // by the administrator
	do(func() error { return RestoreSysctls(record) })
	if got := value("conf/lo/forwarding"); got != "0" {
		t.Errorf("what was changed since is restored: %s", got)
	}
}
