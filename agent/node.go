package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirnet/weir/agent/adopt"
	"github.com/weirnet/weir/agent/claim"
	"github.com/weirnet/weir/agent/engines"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/pods"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/agent/watch"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/rule"
)

// Config configures a node.
type Config struct {
	Paths    Paths
	Settings Settings
	Boot     bool // when its rules cannot be used, the host is locked down
	// rule file that has to exist; "" for Paths.Rules(), which may be missing
	Rules  string
	Log    *slog.Logger    // the node's log
	Ready  func(string)    // called once when everything is in force, with a line for people
	Reload <-chan struct{} // asks to read the rule file again; may be nil
}

// Node is a running agent.
type Node struct {
	config  Config
	log     *slog.Logger
	engine  *engines.Pair
	rules   *rules.Book
	explain rules.Explainer
	links   *host.Links
	hooks   *host.Hooks
	routes  *host.Routes
	pods    *pods.Service
	peers   *peers
	began   time.Time
	// remeasure: routes with an MTU of their own may have changed since the engine got them.
	remeasure     atomic.Bool
	downRequested chan struct{} // closed by a request to take everything down
	downResult    chan error    // the result of that
	retry         problem.Retrier
	// endTrying ends the retries and waits for them.
	endTrying func()
	// unlockPins releases the claim on the pins' directory.
	unlockPins func()
	// read by the loop: a send that succeeds proves that it turns
	pulse chan struct{}
	// rules that deny by default were in force when this agent took over
	denied bool

	observer *watch.Observer
	problems problem.List

	mu      sync.Mutex // its place in the lock order: doc.go
	adopted int        // guarded by mu
	leaving bool       // guarded by mu
	keeping bool       // guarded by mu; the files stay when the node goes down
}

// Run runs a node until ctx ends, or until it is asked through the API to take itself down. When
// ctx ends, the kernel keeps enforcing without the agent; the next agent takes over.
func Run(ctx context.Context, c Config) (err error) {
	n := &Node{
		config: c, log: c.Log, links: host.NewLinks(), began: time.Now(),
		downRequested: make(chan struct{}),
		downResult:    make(chan error, 1),
		pulse:         make(chan struct{}),
	}
	n.problems.Log, n.retry.Problems = n.log, &n.problems
	claims, err := n.claim()
	defer claims.Release()
	if err != nil {
		return err
	}
	// close the ranges of peers to the default route before anything can fail
	n.peers = newPeers(n)
	n.unlockPins = func() { claims.ReleaseOne(c.Paths.Pins()) }
	guard, err := kernel.Open(kernel.Config{Dir: c.Paths.Pins(), Options: c.Settings.Engine})
	if err != nil {
		return err
	}
	n.engine = engines.New(guard)
	defer func() { err = errors.Join(err, n.engine.Close()) }()

	n.hooks = host.NewHooks(host.Config{Settings: c.Settings.Host, Engine: n.engine,
		Links: n.links, Tunnel: n.peers, Log: n.log, Problems: &n.problems})
	n.routes = host.NewRoutes(n.engine)
	n.pods = pods.New(pods.Config{Settings: c.Settings.Pods, Dir: c.Paths.Pods(),
		Socket: c.Paths.Docker(), Log: n.log, Problems: &n.problems, Engine: n.engine,
		Hooks: n.hooks, Links: n.links,
		RecordSysctls: func() error { return host.RecordSysctls(c.Paths.Sysctls()) },
		PeerRanges:    func() []netip.Prefix { return *n.peers.ranges.Load() },
		Tunnel:        c.Settings.Overlay.Name, TunnelPort: n.peers.port})
	n.rules = rules.New(rules.Config{Settings: c.Settings.Rules, File: c.Rules,
		Default: c.Paths.Rules(), Saved: c.Paths.Saved(),
		// what an earlier agent left in force guards better than any lock-down
		LockDown: c.Boot && !kernel.Guards(c.Paths.Pins()), Engine: n.engine,
		Prepare: n.routes.Set, Loaded: n.loaded, Log: n.log, Problems: &n.problems})
	n.explain = rules.Explainer{Book: n.rules, Options: c.Settings.Engine,
		Interfaces: n.links.Interfaces, Labels: n.pods.Labels, States: n.engine.States}
	n.observer = watch.New(watch.Config{Settings: c.Settings.Watch, Dir: c.Paths.eventsDir(),
		Log: n.log, Problems: &n.problems, Retry: &n.retry, Engine: n.engine, Links: n.links,
		Rules: n.rules, Pods: n.pods,
		Metrics: []func() ([]observe.Metric, error){n.peers.metrics, n.nodeMetrics}})

	ctx, cancel := context.WithCancel(ctx)
	n.endTrying = func() { cancel(); n.retry.Wait() }
	defer n.endTrying()
	if err := host.Watch(ctx, &n.retry, n.links, n.routes); err != nil {
		return err
	}
	if err := n.begin(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.rules.Close()) }()
	stop := n.observer.Begin(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	n.peers.begin()
	defer func() { err = errors.Join(err, n.peers.close()) }()
	return n.serve(ctx)
}

// claim makes the node's directories and claims them: the socket's, so that two agents never share
// a root, and that of the pins, so that they never share these.
func (n *Node) claim() (claim.Claims, error) {
	p := n.config.Paths
	var held claim.Claims
	if err := os.MkdirAll(p.Run(), 0o755); err != nil {
		return nil, err
	}
	l, err := claim.ByFile(p.Run())
	if err != nil {
		return nil, err
	}
	held = append(held, l)
	fleeting, err := host.PreparePins(p.Pins(), p.mountPoint())
	if err != nil {
		return held, err
	}
	if l, err = claim.Dir(p.Pins()); err != nil {
		return held, err
	}
	if fleeting {
		n.problems.Add("this process has mounts of its own, so that enforcement ends with it",
			"mount a bpf file system for all processes and name a directory of it with --bpffs")
	}
	return append(held, l), nil
}

// loaded runs after each change of the rules in force. Rules that deny by default after none that
// did would cut off what is open.
func (n *Node) loaded(old, new *rule.Program, set *rule.Ruleset) {
	if !new.Strict || old != nil && old.Strict {
		return
	}
	if old == nil && n.denied { // what is open and has no state was refused
		return
	}
	count, err := adopt.Connections(new, func() (*soft.Engine, error) {
		return n.explain.Engine(new, set)
	}, n.engine.Adopt)
	if t := n.peers.tunnel.Load(); t != nil {
		err = errors.Join(err, t.adopt(new))
	}
	if err != nil {
		n.problems.Add("connections that were open before may be cut off: "+err.Error(),
			"weir doctor")
	}
	n.mu.Lock()
	n.adopted += count
	n.mu.Unlock()
}

// serve answers the API and follows the interfaces until the end. Other listeners may come later.
func (n *Node) serve(ctx context.Context) (err error) {
	s := newServer(n)
	served := make(chan error, 2)
	n.retry.Until(ctx, "the sockets of the API", "weir doctor",
		func() error { return s.begin(n.config.Paths, served) })
	n.retry.Attend(ctx, "dockerd", "weir doctor", n.pods.ServeDocker)
	n.retry.Attend(ctx, "the address of the metrics", "see observe.metrics in the settings",
		n.observer.ServeScrapes)
	watch.Notify("READY=1")
	n.config.Ready(n.readyLine())
	err = n.loop(ctx, served)
	watch.Notify("STOPPING=1")
	n.endTrying()
	n.pods.Stop() // or it would take pods that go down for dead
	down := n.isLeaving()
	if down {
		n.downResult <- n.remove()
	}
	err = errors.Join(err, s.close())
	n.pods.Close()
	if down {
		err = errors.Join(err, n.removeRun())
	}
	return err
}

func (n *Node) loop(ctx context.Context, served <-chan error) error {
	dog := watch.Watchdog{Pulse: n.pulse,
		Locks: []func(){n.rules.Ping, n.hooks.Ping, func() { n.engine.Attached() }},
		Slow: []*watch.Slow{{Lock: n.peers.Lock, Progress: n.peers.set.Load},
			{Lock: n.pods.Ping}}}
	dog.Begin(ctx)
	refused := time.NewTicker(retryEvery)
	defer refused.Stop()
	reread := time.NewTicker(host.RereadEvery)
	defer reread.Stop()
	for {
		select {
		case <-reread.C:
			n.links.Reread()
		case <-n.pulse:
		case <-ctx.Done():
			return nil
		case <-n.downRequested:
			return nil
		case err := <-served:
			return fmt.Errorf("serve the API: %w", err)
		case <-n.links.Wake():
			n.hooks.Follow()
		case <-refused.C:
			if n.hooks.Behind() {
				n.hooks.Follow()
			}
		case <-n.routes.Wake():
			if err := n.followRoutes(); err != nil {
				n.log.Error("cannot follow the routes", "err", err)
			}
		case <-n.config.Reload:
			if err := n.reload(); err != nil {
				n.log.Error("nothing was changed", "err", err)
			}
		}
	}
}

// followRoutes gives the engine the host's routes, if the rules in force ask about them, and the
// routes with an MTU of their own, if there may be pods.
func (n *Node) followRoutes() (err error) {
	n.rules.View(func(_ rules.Version, p *rule.Program) { err = n.routes.Set(p) })
	if n.pods.Begun() {
		err = errors.Join(err, n.routes.SetMTUs())
	}
	return err
}

// readyLine describes in one line what is in force.
func (n *Node) readyLine() string {
	s, err := n.status()
	if err != nil {
		return "ready, but: " + err.Error()
	}
	names := "no interface yet"
	for i, f := range s.Interfaces {
		if i == 0 {
			names = f.Name
			continue
		}
		names += " " + f.Name
	}
	line := fmt.Sprintf("ready: guards %s, %d rules from %s, default %s", names, s.Rules, s.Source,
		s.Default)
	if s.TakenOver {
		line += fmt.Sprintf(", took over %d states", s.States)
	}
	if migrated := n.engine.Migrated(); migrated > 0 {
		line += fmt.Sprintf(", migrated %d states", migrated)
	}
	if s.Adopted > 0 {
		line += fmt.Sprintf(", adopted %d open connections", s.Adopted)
	}
	return line
}
