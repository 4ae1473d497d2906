package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/dirlock"
	"github.com/weirnet/weir/agent/engines"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/nat"
	"github.com/weirnet/weir/agent/netfilter"
	"github.com/weirnet/weir/agent/peers"
	"github.com/weirnet/weir/agent/pods"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/agent/services"
	"github.com/weirnet/weir/agent/watch"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/store/disk"
)

// Config configures a node.
type Config struct {
	Paths    Paths
	Settings Settings
	Boot     bool // when its rules cannot be used, the host is locked down
	// rule file that has to exist; "" for Paths.Rules(), which may be missing
	Rules string
	// a rule file is on trial for so long at first; 0 for no trial
	Confirm time.Duration
	Log     *slog.Logger    // the node's log
	Build   observe.Build   // what the agent was built from
	Ready   func(string)    // called once when everything is in force, with a line for people
	Reload  <-chan struct{} // asks to read the rule file again; may be nil
}

// Node is a running agent: its parts, and what starts and stops them.
type Node struct {
	config   Config
	log      *slog.Logger
	problems problem.List
	retry    problem.Retrier
	began    time.Time

	engine   *engines.Pair
	links    *host.Links
	hooks    *host.Hooks
	router   *host.Router
	routes   *host.Routes
	rules    *rules.Manager
	explain  rules.Explainer
	panics   rules.Panics
	adoption rules.Adoption
	previews *rules.Previews
	pods     *pods.Service
	nat      *nat.Service
	services *services.Manager
	peers    *peers.Service
	observer *watch.Observer
	// what netfilter translates; used when the pods begin, and by the loop
	netfilter netfilter.Watcher
	stack     host.Stack // what has packets of pods go up the stack
	shared    *cluster.SharedTables
	cluster   *cluster.Service // nil on a host without a cluster
	member    *disk.Member     // what the host had of its cluster at the start; may be nil
	// why the store is not followed, although the host has joined a cluster; nil otherwise
	unfollowed error

	// read by the loop: a send that succeeds proves that it turns
	heartbeat     chan struct{}
	again         chan struct{} // has an element when the node is to begin again
	downRequested chan struct{} // closed by a request to take everything down
	downResult    chan error    // the result of that
	unlockPins    func()        // releases the lock on the pins' directory
	pinsInPlace   func() error  // reports whether that directory is where it was

	mu      sync.Mutex // its place in the lock order: doc.go
	leaving bool       // guarded by mu
	keeping bool       // guarded by mu; the files stay when the node goes down
}

// ErrRestart is the error of Run for a node that must restart because its identity changed. The
// kernel keeps enforcing meanwhile.
var ErrRestart = errors.New("the node restarts")

// Run runs a node until ctx ends, or until it is asked through the API to take itself down. When
// ctx ends, the kernel keeps enforcing without the agent; the next agent takes over.
func Run(ctx context.Context, c Config) (err error) {
	member, ranges, unknown := cluster.ReadMember(c.Paths.Store())
	if len(ranges) > 0 {
		c.Settings.Pods.Ranges = ranges
	}
	n := newNode(c, member != nil)
	n.member = member
	locks, err := n.lockDirs()
	defer locks.Release()
	if err != nil {
		return err
	}
	n.unlockPins = func() { locks.ReleaseOne(c.Paths.Pins()) }
	n.pinsInPlace = func() error { return locks.CheckInPlace(c.Paths.Pins()) }
	n.peers.Load() // closes their ranges to the default route before anything can fail
	if err := n.engine.Open(kernel.Config{Dir: c.Paths.Pins(),
		Options: c.Settings.Engine}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.engine.Close()) }()

	ctx, cancel := context.WithCancel(ctx)
	end := func() { cancel(); n.retry.Wait() }
	defer end()
	if err := host.Watch(ctx, &n.retry, n.links, n.routes); err != nil {
		return err
	}
	n.unfollowed = unknown
	if unknown == nil && member != nil {
		n.unfollowed = n.followCluster(member)
	}
	if n.unfollowed != nil {
		n.problems.Set("the cluster", "this host does not follow the store of its cluster: "+
			n.unfollowed.Error(), "weir join makes the host a member again")
	}
	if err := n.begin(ctx); err != nil {
		return errors.Join(err, n.closeCluster())
	}
	defer func() { err = errors.Join(err, n.rules.Close()) }()
	go n.rules.FollowLists(ctx)
	stop := n.observer.Begin(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	n.peers.Begin()
	defer func() { err = errors.Join(err, n.peers.Close()) }()
	left := n.beginCluster(ctx)
	defer func() { cancel(); err = errors.Join(err, left()) }()
	return n.serve(ctx, end)
}

// lockDirs makes the node's directories and locks them: the socket's, so that two agents never
// share a root, and that of the pins, so that they never share these.
func (n *Node) lockDirs() (dirlock.Locks, error) {
	p := n.config.Paths
	var held dirlock.Locks
	if err := os.MkdirAll(p.Run(), 0o755); err != nil {
		return nil, err
	}
	l, err := dirlock.AcquireByFile(p.Run())
	if err != nil {
		return nil, err
	}
	held = append(held, l)
	fleeting, err := host.PreparePins(p.Pins(), p.mountPoint())
	if err != nil {
		return held, err
	}
	if l, err = dirlock.Acquire(p.Pins()); err != nil {
		return held, err
	}
	if fleeting {
		n.problems.Add("this process has its own mount namespace, so that enforcement ends with it",
			"mount a bpf file system for all processes and name a directory of it with --bpffs")
	}
	return append(held, l), nil
}

// serve answers the API and follows the interfaces until the end. Other listeners may come later.
func (n *Node) serve(ctx context.Context, end func()) (err error) {
	s := newServer(n)
	served := make(chan error, 2)
	n.retry.Start(ctx, "pods cannot look up names", "free the port, or set dns = false in [pods]",
		n.pods.ServeDNS)
	n.retry.Until(ctx, "cannot serve the API", "weir doctor",
		func() error {
			if err := s.begin(n.config.Paths, served); err != nil {
				return err
			}
			n.noticeJoin()
			return nil
		})
	go n.services.Run(ctx)
	n.retry.Start(ctx, "cannot serve dockerd", "weir doctor", n.pods.ServeDocker)
	n.retry.Start(ctx, "cannot serve metrics", "set another observe.metrics in weir.toml",
		n.observer.ServeScrapes)
	watch.Notify("READY=1")
	n.config.Ready(n.readyLine())
	err = n.loop(ctx, served)
	if !errors.Is(err, ErrRestart) {
		watch.Notify("STOPPING=1")
	}
	end()
	n.pods.Stop() // or it would take pods that go down for dead
	down := n.isLeaving()
	if down {
		n.downResult <- n.remove()
	}
	err = errors.Join(err, s.close())
	n.pods.Close()
	if !down {
		return err
	}
	if err = errors.Join(err, n.removeRun()); err != nil && !errors.Is(err, ErrRestart) {
		n.log.Error("not all was closed when the node went down", "err", err)
	}
	return nil // or the service manager starts the node again, or closes the host
}

func (n *Node) loop(ctx context.Context, served <-chan error) error {
	n.newWatchdog().Begin(ctx)
	refused := time.NewTicker(host.RetryEvery)
	defer refused.Stop()
	reread := time.NewTicker(host.RereadEvery)
	defer reread.Stop()
	look := time.NewTicker(netfilter.Interval)
	defer look.Stop()
	for {
		select {
		case <-reread.C:
			n.links.Reread()
			n.stack.Refresh()
			n.followLocal() // of those that go with an interface the kernel reports nothing
			n.lookAtNetfilter(true)
			n.recheckHooks()
			n.router.CheckForwarding(&n.problems)
		case <-n.hooks.Suspect():
			n.recheckHooks()
		case <-look.C:
			n.lookAtNetfilter(false)
		case <-n.heartbeat:
		case <-ctx.Done():
			return nil
		case <-n.downRequested:
			return nil
		case <-n.again:
			return ErrRestart
		case err := <-served:
			return fmt.Errorf("serve the API: %w", err)
		case <-n.links.Wake():
			n.hooks.Follow()
			n.announce()
		case <-refused.C:
			if n.hooks.Incomplete() {
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
