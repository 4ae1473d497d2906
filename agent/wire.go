package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/engines"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/nat"
	"github.com/weirnet/weir/agent/netfilter"
	"github.com/weirnet/weir/agent/peers"
	"github.com/weirnet/weir/agent/pods"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/agent/services"
	"github.com/weirnet/weir/agent/watch"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/internal/program"
	"github.com/weirnet/weir/observe"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/pod"
)

// newNode connects the parts of a node. It changes nothing on the host. What a part needs of one
// that is made later is a function.
func newNode(c Config, member bool) *Node {
	n := &Node{config: c, log: c.Log, began: time.Now(), heartbeat: make(chan struct{}),
		again: make(chan struct{}, 1), downRequested: make(chan struct{}),
		downResult: make(chan error, 1)}
	n.problems.Log, n.retry.Problems = n.log, &n.problems
	n.engine = new(engines.Pair)
	n.shared = cluster.NewSharedTables(n.engine, &n.problems)
	n.links = host.NewLinks()
	n.peers = peers.New(n.peersConfig())
	n.router = host.NewRouter(c.Paths.Sysctls())
	n.hooks = host.NewHooks(host.Config{Settings: c.Settings.Host, Engine: n.engine,
		Links: n.links, Router: n.router, Tunnel: n.peers, Log: n.log, Problems: &n.problems})
	n.routes = host.NewRoutes(n.engine)
	n.stack.Engine, n.stack.Problems, n.stack.Log = n.engine, &n.problems, n.log
	n.netfilter = netfilter.Watcher{Engine: n.engine, Log: n.log, Stack: n.stack.Why}
	n.netfilter.Scope = func() netfilter.Scope {
		return netfilter.Scope{Pods: n.pods.Networks(), Interfaces: n.links.Interfaces(),
			Guards: c.Settings.Host.Guards, Masquerade: c.Settings.Pods.Masquerade}
	}
	n.pods = pods.New(pods.Config{Settings: c.Settings.Pods, Dir: c.Paths.Pods(),
		Socket: c.Paths.Docker(), Networks: c.Paths.DockerNetworks(), Log: n.log,
		Problems: &n.problems, Engine: n.engine, Hooks: n.hooks, Links: n.links,
		PrepareForwarding: n.router.PrepareForwarding,
		Changed:           n.podsChanged,
		PeerRanges:        n.peers.Ranges,
		Others: func() ([]forward.SourceNAT, []netip.Prefix) {
			return n.nat.SourceNATs()
		},
		Tunnel: c.Settings.Overlay.Name, TunnelPort: n.peers.Port})
	n.nat = nat.New(nat.Config{Settings: c.Settings.NAT, Problems: &n.problems,
		SetForwards: n.engine.SetForwards, SetForwarding: n.router.EnableForwarding,
		SetMasquerade: n.pods.SetMasquerade, IsMe: n.links.IsMe, IsOnly: n.links.IsOnly})
	n.services = services.New(services.Config{File: c.Paths.Services(),
		Ranges: c.Settings.Pods.Ranges, Log: n.log, Problems: &n.problems, Engine: n.engine,
		HasAddress: n.links.HasAddress, IsMe: n.links.IsMe, Taken: n.checkVirtual,
		Pods: func() ([]pod.Pod, bool) {
			return knownPods(n.pods.Known, n.pods.LivePods)
		},
		AddAddress: services.AddAddress, RemoveAddress: services.RemoveAddress,
		Changed: func(a netip.Addr) {
			if n.cluster != nil {
				n.cluster.AddressChanged(a)
			}
		}})
	var shared func() (rules.Version, bool)
	if member {
		shared = n.sharedRules
	}
	n.rules = rules.New(rules.Config{Shared: shared,
		Unfollowed: func() error { return n.unfollowed }, Settings: c.Settings.Rules,
		File: c.Rules, Default: c.Paths.Rules(), Saved: c.Paths.Saved(), Confirm: c.Confirm,
		// what an earlier agent left in force guards better than any lock-down
		LockDown: func() bool { return c.Boot && !kernel.Guards(c.Paths.Pins()) },
		Engine:   n.engine, Prepare: n.prepare, Loaded: n.loaded, Log: n.log,
		Problems: &n.problems})
	n.explain = rules.Explainer{Manager: n.rules, Options: c.Settings.Engine,
		Interfaces: n.links.Interfaces, Labels: n.labels, States: n.engine.States,
		Guards: c.Settings.Host.Guards}
	n.panics = rules.Panics{Explainer: &n.explain, Tunnel: n.peers, IsMe: n.links.IsMe,
		Guarded: func() []api.Interface {
			guarded, _ := n.hooks.Interfaces()
			return guarded
		}, Adopt: n.engine.Adopt}
	n.adoption.Explainer, n.adoption.Adopt = &n.explain, n.engine.Adopt
	n.adoption.Tunnel, n.adoption.Problems = n.peers.Adopt, &n.problems
	n.observer = watch.New(watch.Config{Settings: c.Settings.Watch, Dir: c.Paths.eventsDir(),
		Log: n.log, Problems: &n.problems, Retry: &n.retry, Engine: n.engine, Links: n.links,
		Rules: n.rules, Pods: n.pods, Peers: n.peers, Why: n.explain.Why,
		Table: n.lookupTable,
		Metrics: []func() ([]observe.Metric, error){n.peers.Metrics, n.pods.Metrics,
			n.services.Metrics, n.rules.Metrics, n.nat.Metrics, n.hooks.Metrics, n.nodeMetrics,
			n.clusterMetrics}})
	n.previews = rules.NewPreviews(&n.explain, n.observer.Past)
	return n
}

// knownPods returns the pods that live, and whether they are all. It asks begun first: a list from
// before the pods were taken over is empty, and must not be known.
func knownPods(begun func() bool, living func() []pod.Pod) ([]pod.Pod, bool) {
	known := begun()
	return living(), known
}

// checkVirtual refuses an address for services that the settings, or other nodes, use.
func (n *Node) checkVirtual(a netip.Addr) error {
	for _, r := range n.peers.Ranges() {
		if r.Contains(a) {
			return fmt.Errorf("%s is in %s, which the pods of another node have; weir peer list", a,
				r)
		}
	}
	if peer := n.peers.NameByEndpoint(a); peer != "" {
		return fmt.Errorf("%s is the endpoint of peer %s, which the host would send to itself; "+
			"choose another one", a, peer)
	}
	return n.nat.CheckServiceAddress(a)
}

// peersConfig is what the peers need; the other parts but the links are made after them.
func (n *Node) peersConfig() peers.Config {
	s := n.config.Settings
	return peers.Config{Settings: s.Overlay, Options: s.Engine, Ranges: s.Pods.Ranges,
		Files: n.config.Paths.peerFiles(), Log: n.log, Engine: n.engine, Links: n.links,
		Guards: s.Host.Guards, Join: n.joinTunnel,
		AddTunnel: func(l nl.Link) error { return n.hooks.AddTunnel(l) },
		Worker: func(w overlay.Worker) overlay.Worker {
			return n.observer.Captures.WrapWorker(w)
		},
		OnEvent: func(e *firewall.Event) { n.observer.TunnelEvent(e) },
		Program: func(f func(*program.Program)) {
			n.rules.View(func(_ rules.Version, p *program.Program) { f(p) })
		},
		Why:           func(q api.Why) (api.Explanation, error) { return n.explain.Why(q) },
		RangesChanged: func() error { return n.pods.SetMasquerade() },
		CheckPort: func(port uint16) error {
			return errors.Join(n.pods.CheckTunnelPort(port), n.nat.CheckTunnelPort(port))
		},
		CheckRange: func(r netip.Prefix) error { return n.services.CheckRange(r) },
		IsPod:      func(a netip.Addr) bool { return n.pods.InRange(a) },
	}
}

// newWatchdog returns the watchdog of all locks that matter. The peers and the pods may need long,
// and so may the cluster, which writes its copy: a disk that hangs must not cost the tunnel.
func (n *Node) newWatchdog() *watch.Watchdog {
	locks := []func(){n.rules.Ping, n.hooks.Ping, func() { n.engine.Attached() }}
	slow := []*watch.SlowPart{{Lock: n.peers.Ping, Progress: n.peers.PeersProcessed},
		{Lock: n.pods.Ping}, {Lock: n.services.Ping}}
	if n.cluster != nil {
		slow = append(slow, &watch.SlowPart{Lock: n.cluster.Ping})
	}
	return &watch.Watchdog{Heartbeat: n.heartbeat, Locks: locks, Slow: slow}
}
