package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// disturbance is something bad that happens to the host.
type disturbance struct {
	name   string
	breaks []string // the streams that it may break
	do     func(*chaos, *rand.Rand) error
}

var disturbances = []disturbance{
	{"kill -9", nil, func(x *chaos, _ *rand.Rand) error { return x.again(syscall.SIGKILL) }},
	{"SIGTERM", nil, func(x *chaos, _ *rand.Rand) error { return x.again(syscall.SIGTERM) }},
	{"killed in its start", nil, killedInStart},
	{"stopped for two seconds", nil, paused},
	{"SIGHUP", nil, func(x *chaos, _ *rand.Rand) error {
		return x.agentNode.agent.Process.Signal(syscall.SIGHUP)
	}},
	{"the same rules loaded", nil, func(x *chaos, _ *rand.Rand) error {
		return x.load("etc/weir/rules", chaosRules)
	}},
	{"rules with a mistake loaded", nil, badRules},
	{"rules on trial", nil, trial},
	{"a rule added and deleted", nil, addDelete},
	{"a table's member added and deleted", nil, tableMember},
	{"a pod comes and goes", nil, podComesAndGoes},
	{"a pod's namespace dies", nil, podDies},
	{"an attach is repeated", nil, attachTwice},
	{"the disk is full", nil, fullDisk},
	{"the disk is full at a start", nil, fullDiskAtStart},
	{"a file is damaged at a start", nil, damagedAtStart},
	{"the peer is removed and added", []string{"tunnel"}, peerAgain},
	{"the peer is killed", []string{"tunnel"}, peerKilled},
	{"the underlay is down for two seconds", []string{"tunnel"}, underlayDown},
	{"the underlay's MTU changes", []string{"tunnel"}, underlayMTU},
}

// again ends the agent and starts the next one.
func (x *chaos) again(s syscall.Signal) error {
	if err := x.agentNode.signal(s); err != nil {
		return err
	}
	return x.agentNode.start()
}

func killedInStart(x *chaos, r *rand.Rand) error {
	if err := x.agentNode.signal(syscall.SIGKILL); err != nil {
		return err
	}
	for range 1 + r.IntN(3) {
		if err := x.agentNode.killInStart(time.Duration(r.IntN(1500)) *
			time.Millisecond); err != nil {
			return err
		}
	}
	return x.agentNode.start()
}

func paused(x *chaos, _ *rand.Rand) error {
	p := x.agentNode.agent.Process
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	return p.Signal(syscall.SIGCONT)
}

// load writes a file and loads it.
func (x *chaos) load(name, text string, more ...string) error {
	if err := x.agentNode.write(name, text); err != nil {
		return err
	}
	_, err := x.agentNode.run(append(append([]string{"fw", "load"}, more...),
		filepath.Join(x.agentNode.root, name))...)
	return err
}

func badRules(x *chaos, _ *rand.Rand) error {
	if x.load("bad.rules", chaosRules+"add allow nonsense\n") == nil {
		return errors.New("rules with a mistake were loaded")
	}
	return nil
}

func trial(x *chaos, r *rand.Rand) error {
	if err := x.load("trial.rules", chaosRules+"add 5000 deny icmp from any to any\n", "--confirm",
		"1s"); err != nil {
		return err
	}
	if r.IntN(2) == 0 {
		return x.again(syscall.SIGKILL)
	}
	for deadline := time.Now().Add(longTimeout); ; time.Sleep(100 * time.Millisecond) {
		out, err := x.agentNode.run("fw", "list")
		if err != nil || !strings.Contains(string(out), "5000") {
			return err
		}
		if time.Now().After(deadline) {
			return errors.New("a trial without confirmation did not end")
		}
	}
}

func addDelete(x *chaos, r *rand.Rand) error {
	n := fmt.Sprint(6000 + r.IntN(100))
	if _, err := x.agentNode.run("fw", "add", n, "deny", "tcp", "from", "192.0.2.1", "to",
		"any"); err != nil {
		return err
	}
	_, err := x.agentNode.run("fw", "delete", n)
	return err
}

func tableMember(x *chaos, r *rand.Rand) error {
	a := fmt.Sprintf("192.0.2.%d", r.IntN(250))
	if _, err := x.agentNode.run("fw", "table", "guests", "add", a); err != nil {
		return err
	}
	if r.IntN(3) == 0 {
		if err := x.again(syscall.SIGKILL); err != nil {
			return err
		}
	}
	_, err := x.agentNode.run("fw", "table", "guests", "delete", a)
	return err
}

func podComesAndGoes(x *chaos, _ *rand.Rand) (err error) {
	n, addr, end, err := x.extra()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := x.agentNode.attach(n, "--addr", addr.String(), "--label", "role=churn"); err != nil {
		return err
	}
	_, err = x.agentNode.run("pod", "detach", n.String())
	return err
}

// podDies ends a namespace without a detach.
func podDies(x *chaos, r *rand.Rand) error {
	n, addr, end, err := x.extra()
	if err != nil {
		return err
	}
	err = x.agentNode.attach(n, "--addr", addr.String(), "--label", "role=client")
	if err := errors.Join(err, end()); err != nil {
		return err
	}
	if r.IntN(2) == 0 {
		if err := x.again(syscall.SIGKILL); err != nil {
			return err
		}
	}
	// Its address leaves the label's table by itself.
	for deadline := time.Now().Add(longTimeout); ; time.Sleep(100 * time.Millisecond) {
		out, err := x.agentNode.run("fw", "table", "role=client", "list")
		if err == nil && !strings.Contains(string(out), addr.String()+"/") {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the address of a pod that is dead stays in the table of its label: "+
				"%v\n%s", err, out)
		}
	}
	return x.awaitHealthy()
}

func attachTwice(x *chaos, _ *rand.Rand) (err error) {
	n, addr, end, err := x.extra()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	for range 2 {
		if err := x.agentNode.attach(n, "--addr", addr.String(), "--label",
			"role=client"); err != nil {
			return err
		}
	}
	if _, err := x.agentNode.run("pod", "detach", n.String()); err != nil {
		return err
	}
	out, err := x.agentNode.run("fw", "table", "role=client", "list")
	if err == nil && strings.Contains(string(out), addr.String()+"/") {
		return fmt.Errorf("the address of a pod that is gone stays in the table of its label:\n%s",
			out)
	}
	return err
}

// fill fills the file system of the state and returns what empties it.
func (x *chaos) fill() (empty func() error, err error) {
	path := filepath.Join(x.agentNode.root, "var/lib/weir/fill")
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for b := make([]byte, 4096); ; {
		if _, err := f.Write(b); errors.Is(err, unix.ENOSPC) {
			return func() error { return os.Remove(path) }, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func fullDisk(x *chaos, r *rand.Rand) error {
	empty, err := x.fill()
	if err != nil {
		return err
	}
	addErr := addDelete(x, r)
	loadErr := x.load("full.rules", chaosRules+"add 5100 deny icmp from any to any\n")
	if err := empty(); err != nil {
		return err
	}
	if loadErr == nil { // it fitted: back
		return x.load("etc/weir/rules", chaosRules)
	}
	_ = addErr // either is well: done, or refused
	out, err := x.agentNode.run("fw", "list")
	if err == nil && strings.Contains(string(out), "5100") {
		return errors.New("rules that were refused are in force")
	}
	return errors.Join(err, x.awaitHealthy())
}

func fullDiskAtStart(x *chaos, _ *rand.Rand) error {
	empty, err := x.fill()
	if err != nil {
		return err
	}
	err = x.again(syscall.SIGKILL)
	return errors.Join(err, empty(), x.awaitHealthy())
}

// damagedAtStart cuts the saved rules, the journal's newest file or what the gateways' record
// holds; the rule file is whole.
func damagedAtStart(x *chaos, r *rand.Rand) error {
	if err := x.agentNode.signal(syscall.SIGKILL); err != nil {
		return err
	}
	var files []string
	for _, pattern := range []string{"rules.saved", "pods/*gateway*", "events/*"} {
		found, err := filepath.Glob(filepath.Join(x.agentNode.root, "var/lib/weir", pattern))
		if err != nil {
			return err
		}
		files = append(files, found...)
	}
	if len(files) > 0 {
		path := files[r.IntN(len(files))]
		whole, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, whole[:len(whole)*r.IntN(8)/8], 0o600); err != nil {
			return err
		}
	}
	if err := x.agentNode.start(); err != nil {
		return err
	}
	return errors.Join(x.load("etc/weir/rules", chaosRules), x.seen())
}

// seen removes what was set aside as damaged, as the status asks the administrator to.
func (x *chaos) seen() error {
	for _, dir := range []string{"var/lib/weir", "var/lib/weir/*"} {
		aside, err := filepath.Glob(filepath.Join(x.agentNode.root, dir, "*.damaged-*"))
		if err != nil {
			return err
		}
		for _, path := range aside {
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return x.awaitHealthy()
}

func peerAgain(x *chaos, _ *rand.Rand) error {
	if _, err := x.agentNode.run("peer", "remove", "right"); err != nil {
		return err
	}
	return x.addPeer()
}

func peerKilled(x *chaos, _ *rand.Rand) error {
	if err := x.peer.agentNode.signal(syscall.SIGKILL); err != nil {
		return err
	}
	time.Sleep(time.Second)
	return x.peer.agentNode.start()
}

func underlay(w *testbed, card string, args ...string) error {
	if out, err := w.host.Command("ip",
		append([]string{"link", "set", card}, args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip link: %w: %s", err, out)
	}
	return nil
}

func underlayDown(x *chaos, _ *rand.Rand) error {
	if err := underlay(x.testbed, "eth1", "down"); err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	return underlay(x.testbed, "eth1", "up")
}

// underlayMTU changes both ends: over IPv4, a link whose ends disagree swallows whatever is too
// large.
func underlayMTU(x *chaos, r *rand.Rand) error {
	mtu := fmt.Sprint(1400 + r.IntN(100))
	return errors.Join(underlay(x.testbed, "eth1", "mtu", mtu),
		underlay(x.peer, "eth0", "mtu", mtu))
}

// awaitHealthy waits until problems that are over are gone from the status.
func (x *chaos) awaitHealthy() error {
	for deadline := time.Now().Add(longTimeout); ; time.Sleep(200 * time.Millisecond) {
		s, err := x.agentNode.status()
		if err == nil && s.Healthy {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not healthy after %v: %+v%v", longTimeout, s.Problems, err)
		}
	}
}
