package test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirnet/weir/internal/nstest"
)

// stepTime is what a build of weir has in place of time.Now: a signal sets the time of day of the
// process ten years ahead, or back. With inThePast in its environment it begins ten years ago. No
// namespace has a time of day of its own.
const (
	inThePast = "BEGIN_TEN_YEARS_AGO=1"
	stepTime  = `package time

import (
	"sync/atomic"
	"syscall"
)

var stepped = begin()

func begin() *atomic.Int64 {
	n := new(atomic.Int64)
	if _, past := syscall.Getenv("BEGIN_TEN_YEARS_AGO"); past {
		n.Store(-10 * 366 * 86400)
	}
	return n
}

// Step sets the time of day.
func Step(seconds int64) { stepped.Add(seconds) }
`
	stepBySignal = `package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var _ = stepBySignal()

func stepBySignal() bool {
	fmt.Fprintln(os.Stderr, "begins in", time.Now().Year())
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGUSR2)
	go func() {
		for s := range signals {
			seconds := int64(10 * 366 * 86400)
			if s == syscall.SIGUSR2 {
				seconds = -seconds
			}
			time.Step(seconds)
			fmt.Fprintln(os.Stderr, "it is", time.Now().Year())
		}
	}()
	return true
}
`
)

// shortSessions are the times of sessions of the tunnel: they end in seconds.
var shortSessions = map[string]string{"RekeyAfterTime": "1500 * time.Millisecond",
	"RejectAfterTime": "4000 * time.Millisecond", "RekeyTimeout": "500 * time.Millisecond",
	"KeepaliveTimeout": "1000 * time.Millisecond"}

// steppedWeir builds that.
func steppedWeir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	std := filepath.Join(strings.TrimSpace(string(out)), "src/time")
	replaced := map[string]string{}
	replace := func(path, text string) {
		name := filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		replaced[path] = name
	}
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	text := read(filepath.Join(std, "time.go"))
	if strings.Count(text, now) != 1 {
		t.Fatal("time.Now is another one in this Go")
	}
	replace(filepath.Join(std, "time.go"), strings.Replace(text, now,
		now+"\tsec += stepped.Load()\n", 1))
	replace(filepath.Join(std, "step.go"), stepTime)
	replace(filepath.Join(repository, "cmd/weir/step.go"), stepBySignal)
	constants := filepath.Join(repository, "overlay/internal/device/constants.go")
	text = read(constants)
	for name, value := range shortSessions {
		line := regexp.MustCompile(`(?m)^(\s*` + name + `\s*=).*$`)
		if len(line.FindAllString(text, -1)) != 1 {
			t.Fatalf("%s has no line for %s", constants, name)
		}
		text = line.ReplaceAllString(text, "${1} "+value)
	}
	replace(constants, text)
	list, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	overlay, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "weir")
	if err := os.WriteFile(overlay, list, 0o644); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", overlay, "-o", program,
		"./cmd/weir")
	build.Dir = repository
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// kept is a connection that asks again and again.
type kept struct {
	conn net.Conn
	from *bufio.Reader
}

func (c *kept) ask() error {
	if err := c.conn.SetDeadline(time.Now().Add(hang)); err != nil {
		return err
	}
	if _, err := io.WriteString(c.conn, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
		return err
	}
	r, err := http.ReadResponse(c.from, nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	_, err = io.Copy(io.Discard, r.Body)
	return err
}

// TestLongSteppedClock: the time of day of a host is set back ten years, twenty ahead, and back
// again while it runs. Connections continue and begin, also those that need a new session of the
// tunnel; the store stays connected; a trial ends in its time.
func TestLongSteppedClock(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl", "nft")
	stepped := steppedWeir(t)
	started := time.Now()
	k := newCluster(t)
	k.a.up, k.b.up = stepped, stepped
	k.join("a", k.a)
	k.join("b", k.b)
	if out, err := k.load(clusterRules); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	web, webPod := k.a.attach("web", "--label", "app=web")
	nginx(t, web, 80)
	client, _ := k.b.attach("client", "--label", "app=client")
	address := webPod.Addrs[0]
	reach(t, client, pageAt(address, 80))
	conn, err := client.DialContext(t.Context(), "tcp", fmt.Sprintf("%v:80", address))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	open := &kept{conn, bufio.NewReader(conn)}
	works := func(when string) {
		t.Helper()
		began := time.Now()
		if err := open.ask(); err != nil {
			t.Fatalf("%s: an open connection: %v", when, err)
		}
		if _, err := curl(client, "--connect-timeout", fmt.Sprint(hang.Seconds()),
			pageAt(address, 80)); err != nil {
			t.Fatalf("%s: a new connection: %v", when, err)
		}
		t.Logf("%s: %v", when, time.Since(began).Round(time.Millisecond))
	}
	k.a.beginsNoSession()
	for range 2 {
		time.Sleep(5 * time.Second)
		works("before")
	}
	const ahead, back = syscall.SIGUSR1, syscall.SIGUSR2
	for _, c := range []struct {
		when    string
		signals []syscall.Signal
		years   int
	}{{"ten years ago", []syscall.Signal{back}, -10},
		{"in ten years", []syscall.Signal{ahead, ahead}, 10},
		{"now again", []syscall.Signal{back}, 0}} {
		when := c.when
		k.stepClock(k.b, c.signals...)
		works(when)
		for range 2 { // the session ends, and the next packet begins another one
			time.Sleep(5 * time.Second)
			works(when + ", with a new session")
		}
		s := k.b.status()
		now := time.Now().Add(time.Duration(c.years) * 366 * 24 * time.Hour)
		if up := now.Sub(s.Since); up < 0 || up > time.Since(started) {
			t.Errorf("%s: it is up for %v", when, up)
		}
		if s.Cluster == nil || !s.Cluster.Connected ||
			s.Cluster.SilentSeconds == nil || *s.Cluster.SilentSeconds < 0 ||
			*s.Cluster.SilentSeconds > 60 {
			t.Errorf("%s: the store: %+v", when, s.Cluster)
		}
	}
	for _, s := range []syscall.Signal{ahead, back} {
		k.trialEndsInTime(client, pageAt(address, 80), func() { k.stepClock(k.b, s) })
	}
}

// beginsNoSession keeps a host from beginning sessions, as with a host behind a NAT.
func (h *podHost) beginsNoSession() {
	h.t.Helper()
	h.host.Run("nft", "table inet quiet { chain out { type filter hook output priority 0; "+
		"udp dport 51820 @th,64,8 1 drop; }; }")
}

// TestLongEarlierClock: a host is killed and starts with a clock that is ten years behind, while
// the store is away. It enforces the last version, and begins sessions of the tunnel with a host
// that has seen later handshakes. It follows the store when that is back. So it does with a clock
// that is right again.
func TestLongEarlierClock(t *testing.T) {
	t.Parallel()
	need(t, "nginx", "curl", "nft")
	program, err := storeProgram()
	if err != nil {
		t.Fatal(err)
	}
	k := newCluster(t)
	k.b.up = steppedWeir(t)
	k.join("a", k.a)
	k.join("b", k.b)
	if out, err := k.load(clusterRules); err != nil {
		t.Fatalf("%s, %v", out, err)
	}
	web, webPod := k.a.attach("web", "--label", "app=web")
	nginx(t, web, 80)
	client, _ := k.b.attach("client", "--label", "app=client")
	page := pageAt(webPod.Addrs[0], 80)
	reach(t, client, page)
	k.a.beginsNoSession()
	const denied = "add 20 deny ip from any to table(app=web)\n" + clusterRules
	for _, past := range []bool{true, true, false} {
		when := fmt.Sprint("ten years ago: ", past)
		k.stopStore()
		k.b.kill()
		if k.b.within = nil; past {
			k.b.within = []string{"env", inThePast}
		}
		k.b.start()
		if now := fmt.Sprint("begins in ", time.Now().Year()); past ==
			strings.Contains(k.b.stderr.String(), now) {
			t.Fatalf("%s: %s", when, k.b.stderr)
		}
		if list := k.b.weir("fw", "list"); !strings.Contains(list, "app=web") {
			t.Errorf("%s: without the store it enforces\n%s", when, list)
		}
		if _, err := curl(client, "--connect-timeout", fmt.Sprint(hang.Seconds()),
			page); err != nil {
			t.Fatalf("%s: without the store: %v", when, err)
		}
		k.startStore(program)
		if out, err := k.load(denied); err != nil {
			t.Fatalf("%s: %s, %v", when, out, err)
		}
		refuse(t, client, page)
		if out, err := k.load(clusterRules); err != nil {
			t.Fatalf("%s: %s, %v", when, out, err)
		}
		reach(t, client, page)
	}
}

// trialEndsInTime loads rules on trial that refuse a page, and sets the clock meanwhile.
func (k *cluster) trialEndsInTime(client *nstest.Node, page string, step func()) {
	t := k.t
	t.Helper()
	const trial = 6 * time.Second
	began := time.Now()
	if out, err := k.load("add 20 deny ip from any to table(app=web)\n"+clusterRules,
		"--confirm", trial.String()); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	step()
	k.eventually("the previous version is back", func() error {
		_, err := curl(client, page)
		return err
	})
	if took := time.Since(began); took < trial {
		t.Errorf("a trial of %v ended after %v", trial, took)
	}
	k.eventually("the store has it back, too", func() error {
		_, err := k.load(clusterRules)
		return err
	})
}

// stepClock sends the signals of stepBySignal to the agent of a host.
func (k *cluster) stepClock(h *podHost, signals ...syscall.Signal) {
	k.t.Helper()
	for _, s := range signals {
		n := strings.Count(h.stderr.String(), "it is ")
		if err := h.agent.Process.Signal(s); err != nil {
			k.t.Fatal(err)
		}
		k.eventually("the clock is set", func() error {
			if strings.Count(h.stderr.String(), "it is ") == n {
				return fmt.Errorf("it is not")
			}
			return nil
		})
	}
}

// hang is what no delay of a busy machine is.
const hang = time.Minute
