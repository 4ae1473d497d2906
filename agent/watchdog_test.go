package agent

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nstest"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/store"
)

// TestWatchdogWaitsForTheDisk: the node is well while the cluster's part holds its lock for long,
// as it does while a disk hangs: traffic does not need it.
func TestWatchdogWaitsForTheDisk(t *testing.T) {
	nstest.RequireRoot(t)
	log := slog.New(slog.DiscardHandler)
	n := newNode(Config{Paths: Paths{Root: t.TempDir()}, Settings: DefaultSettings(), Log: log},
		false)
	if err := n.engine.Open(kernel.Config{Options: firewall.DefaultOptions()}); err != nil {
		t.Fatal(err)
	}
	defer n.engine.Close()
	held, release := make(chan bool), make(chan bool)
	var err error
	n.cluster, err = cluster.Open(cluster.Config{Name: "a", Dir: t.TempDir(), Log: log,
		Problems: &n.problems, Parts: cluster.Parts{FirstCopy: func() error {
			held <- true
			<-release
			return nil
		}}})
	if err != nil {
		t.Fatal(err)
	}
	stepped := make(chan bool)
	go func() {
		defer close(stepped)
		n.cluster.Step(store.Batch{Revision: 1})
	}()
	<-held
	defer func() {
		close(release)
		<-stepped
		n.cluster.Close()
	}()
	go func() { <-n.heartbeat }()
	well := make(chan bool, 1)
	go func() { well <- n.newWatchdog().WaitHealthy(t.Context()) }()
	select {
	case is := <-well:
		if !is {
			t.Error("not well")
		}
	case <-time.After(5 * time.Minute):
		t.Error("the watchdog waits for the cluster's lock")
	}
}

// TestWatchdogAsksEveryPart: the node is not well while a goroutine keeps a lock of a part, or
// while its loop does not turn.
func TestWatchdogAsksEveryPart(t *testing.T) {
	nstest.RequireRoot(t)
	n := newNode(Config{Paths: Paths{Root: t.TempDir()}, Settings: DefaultSettings(),
		Log: slog.New(slog.DiscardHandler)}, false)
	if err := n.engine.Open(kernel.Config{Options: firewall.DefaultOptions()}); err != nil {
		t.Fatal(err)
	}
	defer n.engine.Close()
	dog := n.newWatchdog()
	well := func(turns bool) bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if turns {
			go func() {
				select {
				case <-n.heartbeat:
				case <-ctx.Done():
				}
			}()
		} else {
			cancel()
		}
		return dog.WaitHealthy(ctx)
	}
	if !well(true) {
		t.Error("not well although nothing is wrong")
	}
	if well(false) {
		t.Error("well although the loop does not turn")
	}
	for name, hold := range map[string]func(func()){
		"rules": func(f func()) { n.rules.View(func(rules.Version, *program.Program) { f() }) },
		"hooks": func(f func()) { n.hooks.View(func([]firewall.Interface) { f() }) },
	} {
		answer := make(chan bool, 1)
		hold(func() {
			go func() { answer <- well(true) }()
			select {
			case <-answer:
				t.Errorf("an answer although a goroutine keeps a lock of the %s", name)
			case <-time.After(100 * time.Millisecond):
			}
		})
		<-answer // well or not, after that time
	}
	if slow := len(dog.Slow); slow != 3 {
		t.Errorf("%d parts may be slow: the peers, the pods and the services are", slow)
	}
}
