package rules

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/atomicfile/powercut"
	"github.com/weirnet/weir/rule"
)

func version(t *testing.T, b *Manager, text string) Version {
	t.Helper()
	set, err := b.Parse("all", text)
	if err != nil {
		t.Fatal(err)
	}
	return Version{Set: set, Strict: true, Source: "version of the cluster"}
}

// TestSharedRules: versions of the cluster replace each other, also during a trial. One that is not
// kept goes back to the last one that was not on trial. A start begins with that one, and commands
// of this host alone are refused.
func TestSharedRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, e := newManager(t)
		b.config.Shared = func() (Version, bool) { return Version{}, false }
		open := func(port string) Version {
			return version(t, b, "add 100 allow tcp from any to any "+port+"\n")
		}
		ended := make(chan string, 3)
		end := func(name string) func() { return func() { ended <- name } }
		expect := func(what string, port uint16, saved string) {
			t.Helper()
			for _, p := range []uint16{80, 81, 82} {
				if passes(e, p) != (p == port) {
					t.Errorf("%s: port %d passes: %v", what, p, p != port)
				}
			}
			b.background.group.Wait()
			if !strings.Contains(savedText(t, b), " "+saved+"\n") {
				t.Errorf("%s: saved is\n%s", what, savedText(t, b))
			}
		}
		if err := b.EnforceClusterRules(open("80"), 0, nil); err != nil {
			t.Fatal(err)
		}
		expect("at first", 80, "80")
		if err := b.EnforceClusterRules(open("81"), time.Hour, end("81")); err != nil {
			t.Fatal(err)
		}
		expect("on trial", 81, "80")
		if err := b.EnforceClusterRules(open("82"), time.Second, end("82")); err != nil {
			t.Fatal(err)
		}
		expect("another trial", 82, "80")
		if _, err := b.Revert(t.Context()); !errors.As(err, new(errShared)) {
			t.Errorf("a host leaves a trial of its cluster alone: %v", err)
		}
		if name := <-ended; name != "82" {
			t.Errorf("the trial of %s ends", name)
		}
		expect("not kept", 80, "80")
		if err := b.ConfirmClusterRules(); err == nil {
			t.Error("nothing is on trial")
		}
		if err := b.EnforceClusterRules(open("81"), time.Hour, end("81")); err != nil {
			t.Fatal(err)
		}
		if err := b.ConfirmClusterRules(); err != nil {
			t.Fatal(err)
		}
		expect("kept", 81, "81")
		if err := b.EnforceClusterRules(open("82"), time.Hour, end("82")); err != nil {
			t.Fatal(err)
		}
		if err := b.EnforceClusterRules(open("80"), 0, nil); err != nil {
			t.Fatal(err)
		}
		expect("a version ends a trial", 80, "80")
		for _, line := range []string{"add 1 allow ip from any to any", "table bad add 192.0.2.1",
			"flush"} {
			if _, err := b.do(line, false); err == nil ||
				!strings.Contains(err.Error(), "its cluster") {
				t.Errorf("%s: %v", line, err)
			}
		}
		if _, err := b.Load(t.Context(), api.Load{Name: "f",
			Text: "add allow ip from any to any\n"}); err == nil {
			t.Error("a rule file is loaded on this host alone")
		}
		b.config.Shared = func() (Version, bool) { return open("82"), true }
		if first, err := b.Initial(); err != nil ||
			first.Set.Rules[0].Text() != open("82").Set.Rules[0].Text() {
			t.Errorf("a start begins with %+v, %v", first, err)
		}
	})
}

// TestPanicOfAHostOfACluster: a panic ends a trial of the cluster, and no version of the cluster
// lifts it. A version of rules with a table from a file reads the host's file.
func TestPanicOfAHostOfACluster(t *testing.T) {
	b, e := newManager(t)
	b.config.Shared = func() (Version, bool) { return Version{}, false }
	first := version(t, b, "add 100 allow tcp from any to any 80\n")
	if err := b.EnforceClusterRules(first, 0, nil); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	trial := version(t, b, "add 100 allow tcp from any to any 81\n")
	if err := b.EnforceClusterRules(trial, time.Hour, func() { close(ended) }); err != nil {
		t.Fatal(err)
	}
	if err := b.Panic(t.Context(), nil, 0); err != nil {
		t.Fatal(err)
	}
	<-ended
	file := filepath.Join(t.TempDir(), "list")
	next := version(t, b, "table t create file "+file+"\nadd 100 allow tcp from table(t) to any\n")
	if err := b.EnforceClusterRules(next, 0, nil); err == nil {
		t.Error("the file is not there")
	}
	if err := os.WriteFile(file, []byte("0.0.0.0/0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := b.EnforceClusterRules(next, 0, nil); err == nil || passes(e, 80) || passes(e, 81) {
		t.Errorf("the panic is over: %v", err)
	}
	if err := b.EndPanic(t.Context()); err != nil || !passes(e, 80) || passes(e, 81) {
		t.Errorf("after the panic: %v", err)
	}
	if err := b.EnforceClusterRules(next, 0, nil); err != nil || !passes(e, 81) {
		t.Errorf("after the panic: %v", err)
	}
}

// TestCutsOff: the rule that would refuse a connection of this host, or to it, is named, in both
// directions; what no rule sees is not evaluated.
func TestCutsOff(t *testing.T) {
	b, _ := newManager(t)
	guarded := true
	lo := firewall.Interface{Index: 1, Name: "lo",
		Addrs: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/8")}}
	x := &Explainer{Manager: b, Options: firewall.DefaultOptions(),
		Interfaces: func() []firewall.Interface { return []firewall.Interface{lo} },
		Labels:     func() map[string][]rule.TableEntry { return nil },
		Guards:     func(string) bool { return guarded }}
	store := netip.MustParseAddrPort("127.0.0.1:7477")
	out := []api.RequiredConn{{To: store}}
	in := []api.RequiredConn{{From: netip.MustParseAddr("127.0.0.7"), To: store}}
	const keep = "add 10 check-state\nadd 20 allow tcp from any to any 7477 setup keep-state\n"
	for _, c := range []struct {
		rules  string
		needed []api.RequiredConn
		want   string
	}{
		{keep, out, ""},
		{keep, in, ""},
		{"add 5 deny tcp from any to any 7477 out\n" + keep, out,
			"rule 5 (deny tcp from any to any 7477 out) would cut this host off from " +
				"127.0.0.1:7477"},
		{"add 5 deny tcp from any to any 7477 in\n" + keep, in,
			"rule 5 (deny tcp from any to any 7477 in) would cut 127.0.0.7 off from 127.0.0.1:7477"},
		{"add 20 allow tcp from any to any 7477\n", out, "rule 65535"},
		{"add 5 deny tcp from any 7477 to any\n" + keep, out, "rule 5 (deny tcp from any 7477"},
	} {
		why, err := x.CheckConnectivity(version(t, b, c.rules), c.needed, nil)
		if err != nil || !strings.HasPrefix(why, c.want) || c.want == "" && why != "" {
			t.Errorf("%q: %q, %v, want %q", c.rules, why, err, c.want)
		}
	}
	// An address that the rules in force refuse is one that a host may say of itself.
	must(t, b, "add 10 check-state", "add 15 deny ip from 127.0.0.66 to any",
		"add 20 allow tcp from any to any 7477 setup keep-state")
	evil := []api.RequiredConn{{From: netip.MustParseAddr("127.0.0.66"), To: store}}
	refusing := "add 5 deny ip from 127.0.0.66 to any\n"
	if why, err := x.CheckConnectivity(version(t, b, refusing+keep), evil, nil); err != nil ||
		why != "" {
		t.Errorf("a stolen host prevents a version: %q, %v", why, err)
	}
	if why, _ := x.CheckConnectivity(version(t, b, "add 5 deny tcp from any to any 7477 in\n"+keep),
		append(evil, in...), nil); !strings.Contains(why, "127.0.0.7 off") {
		t.Errorf("one that is not refused now: %q", why)
	}
	session := &api.Session{From: netip.MustParseAddrPort("127.0.0.7:5000"),
		To: netip.MustParseAddrPort("127.0.0.1:22")}
	if why, err := x.CheckConnectivity(version(t, b, keep), nil, session); err != nil ||
		!strings.Contains(why, "could not come in again") {
		t.Errorf("the session: %q, %v", why, err)
	}
	guarded = false
	if why, err := x.CheckConnectivity(version(t, b, "add 5 deny ip from any to any\n"), out,
		session); err != nil ||
		why != "" {
		t.Errorf("an interface that is not guarded: %q, %v", why, err)
	}
}

// TestSharedDiskThatHangs: it delays neither versions of the cluster nor who asks for the rules.
// Once it answers, the last version is saved.
func TestSharedDiskThatHangs(t *testing.T) {
	b, e := newManager(t)
	disk := powercut.New(t)
	b.config.Shared = func() (Version, bool) { return Version{}, false }
	b.store.path = filepath.Join(disk.Dir, "saved")
	release := disk.Hang(t)
	done := make(chan bool)
	go func() {
		defer close(done)
		for _, port := range []string{"80", "81", "82"} {
			v := version(t, b, "add 100 allow tcp from any to any "+port+"\n")
			if err := b.EnforceClusterRules(v, 0, nil); err != nil {
				t.Error(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		trial := version(t, b, "add 100 allow tcp from any to any 83\n")
		if err := errors.Join(b.EnforceClusterRules(trial, time.Hour, func() {}),
			b.ConfirmClusterRules()); err != nil {
			t.Error(err)
		}
		b.Ping()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Minute):
		t.Error("a version waits for the disk")
	}
	if !passes(e, 83) {
		t.Error("the last version is not in force")
	}
	release()
	<-done
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(savedText(t, b), " 83\n") {
		t.Errorf("saved is\n%s", savedText(t, b))
	}
}
