package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

// pods is the part of a node that gives containers their network. Without pod ranges in the
// settings there is none.
type pods struct {
	node    *Node
	manager *pod.Manager
	labels  podLabels
	failed  chan error // what could not be taken away; has space for one
	stop    func()     // of begin

	mu      sync.Mutex // its place in the lock order: doc.go
	trouble error      // guarded by mu; why a pod that is gone has not been taken away yet
}

var errNoPods = errors.New("this node gives no networks to containers; set [pods] ranges in " +
	"weir.toml")

var errPodsLater = errors.New("the pods of an earlier run are not taken over yet; see weir status")

// noPods returns the error for requests while there are no pods.
func (n *Node) noPods() error {
	if len(n.config.Settings.Pods.Ranges) > 0 {
		return errPodsLater
	}
	return errNoPods
}

// beginPods takes over the pods of an earlier run and registers them with the engine.
func (n *Node) beginPods() error {
	s := n.config.Settings.Pods
	if len(s.Ranges) == 0 {
		return nil
	}
	if n.pods.Load() == nil {
		if err := n.links.RangesFree(s.Ranges, n.config.Settings.Overlay.Name); err != nil {
			return err
		}
		if err := host.RecordSysctls(n.config.Paths.Sysctls()); err != nil {
			n.problems.Add("the kernel's settings before Weir are not recorded: "+err.Error(),
				"weir down will leave net.ipv4.ip_forward as it is then")
		}
		p := &pods{node: n, labels: newPodLabels(n.engine), failed: make(chan error, 1),
			stop: func() {}}
		var err error
		p.manager, err = pod.New(pod.Config{Dir: n.config.Paths.Pods(), Ranges: s.Ranges,
			MTU:     s.MTU,
			OnError: p.detachFailed, OnRecordError: p.recordFailed, Labels: n.left.of,
			OnAttach: p.labels.came, OnDetach: p.labels.went}, &podPath{node: n})
		if err != nil {
			return fmt.Errorf("containers: %w", err)
		}
		n.pods.Store(p)
	}
	if err := n.pods.Load().labels.begin(); err != nil {
		return err
	}
	return n.setMasquerade()
}

// setMasquerade sets which packets leave with the host's address: those of pods to anything but
// pods, here and on other nodes.
func (n *Node) setMasquerade() error {
	s, path := n.config.Settings.Pods, podPath{node: n}
	if !s.Masquerade {
		return path.SetMasquerade(firewall.Masquerade{})
	}
	except := slices.Concat(s.Ranges, *n.peers.ranges.Load())
	ephemeral, err := os.ReadFile(ephemeralFile)
	if err != nil {
		return fmt.Errorf("read the ports that the host takes for its own connections: %w", err)
	}
	ports := masqueradePorts(&s, string(ephemeral))
	return path.SetMasquerade(firewall.Masquerade{Sources: s.Ranges, Except: except, Ports: ports})
}

// attachPod gives a container its network. If the client disconnected in the meantime, a new
// attachment is rolled back.
func (n *Node) attachPod(ctx context.Context, r api.Attach) (api.Pod, error) {
	if n.pods.Load() == nil {
		return api.Pod{}, n.noPods()
	}
	spec, err := specOf(r)
	if err != nil {
		return api.Pod{}, err
	}
	if err := n.links.CheckRanges(n.config.Settings.Pods.Ranges,
		n.config.Settings.Overlay.Name); err != nil && !spec.ExternalIPAM {
		return api.Pod{}, fmt.Errorf("pod %s: %w", r.Name, err)
	}
	pods := n.pods.Load()
	if err := pods.checkPublished(&spec); err != nil {
		return api.Pod{}, err
	}
	p, made, err := pods.manager.Attach(ctx, spec)
	if err != nil {
		return api.Pod{}, err
	}
	if made {
		n.log.Info("attached", "pod", p.Name, "addresses", p.Addrs)
	}
	if err := ctx.Err(); made && err != nil {
		return api.Pod{}, errors.Join(err,
			n.pods.Load().detach(context.WithoutCancel(ctx), p.Container, p.IfName, false))
	}
	view := podView(p)
	view.Version = api.Version
	return view, nil
}

func (n *Node) detachPod(ctx context.Context, r api.Detach) (api.Done, error) {
	if n.pods.Load() == nil {
		return api.Done{}, n.noPods()
	}
	return api.Done{Version: api.Version},
		n.pods.Load().detach(ctx, r.Container, r.IfName, r.NoWait)
}

// detach takes a pod away, by the id or the name of its container. It is idempotent: an unknown pod
// is not an error.
func (p *pods) detach(ctx context.Context, name, ifName string, noWait bool) error {
	found, err := p.manager.Find(name, ifName)
	if errors.Is(err, pod.ErrNotFound) {
		return p.manager.Detach(ctx, name, ifName) // it may be under way; then this waits for it
	}
	if err != nil {
		return err
	}
	away := p.manager.Detach
	if noWait {
		away = p.manager.DetachAsync
	}
	if err := away(ctx, found.Container, found.IfName); err != nil {
		return err
	}
	p.node.log.Info("detached", "pod", found.Name)
	return nil
}

func (n *Node) checkPod(r api.Check) (api.Done, error) {
	if n.pods.Load() == nil {
		return api.Done{}, n.noPods()
	}
	return api.Done{Version: api.Version},
		n.pods.Load().manager.Check(r.Container, r.IfName, r.Addrs)
}

// gcPods is the garbage collection of a runtime. It does not touch other networks, Docker's, and
// what was attached by hand.
func (n *Node) gcPods(ctx context.Context, r api.GC) (api.Done, error) {
	if n.pods.Load() == nil {
		return api.Done{}, n.noPods()
	}
	if r.Network == "" {
		return api.Done{}, errors.New("which network's pods are to be collected? Name it as it " +
			"was " +
			"named when they were attached")
	}
	var errs []error
	for _, p := range n.pods.Load().manager.List() {
		if p.Network == r.Network && !slices.Contains(r.Attachments, p.Key) {
			errs = append(errs, n.pods.Load().detach(ctx, p.Container, p.IfName, false))
		}
	}
	return api.Done{Version: api.Version},
		errors.Join(append(errs, n.pods.Load().manager.Sweep(ctx))...)
}

func (n *Node) listPods() (api.Pods, error) {
	list := api.Pods{Version: api.Version, Pods: []api.Pod{}}
	if n.pods.Load() == nil {
		return list, nil
	}
	counters, err := (&podPath{node: n}).Endpoints()
	if err != nil {
		return list, err
	}
	byIndex := map[uint32]firewall.EndpointCounters{}
	for _, c := range counters {
		byIndex[c.Index] = c
	}
	for _, p := range n.pods.Load().manager.List() {
		view, c := podView(p), byIndex[p.Index]
		view.Packets = [2]uint64{c.PacketsIn, c.PacketsOut}
		view.Bytes = [2]uint64{c.BytesIn, c.BytesOut}
		view.Drops = [2]uint64{c.DropsIn, c.DropsOut}
		list.Pods = append(list.Pods, view)
	}
	return list, nil
}

func specOf(r api.Attach) (pod.Spec, error) {
	s := pod.Spec{
		Network: r.Network, Container: r.Container, Name: r.Name, Netns: r.Netns, IfName: r.IfName,
		Addrs: r.Addrs, ExternalIPAM: r.ExternalIPAM, RuntimeMovesInterface: r.Moved, MTU: r.MTU,
		Labels: r.Labels,
		Rates: firewall.Rates{In: r.Rates.In, Out: r.Rates.Out, InBurst: r.Rates.InBurst,
			OutBurst: r.Rates.OutBurst},
	}
	if r.MAC != "" {
		mac, err := net.ParseMAC(r.MAC)
		if err != nil {
			return s, fmt.Errorf("pod %s: %w", r.Name, err)
		}
		s.MAC = mac
	}
	for _, p := range r.Publish {
		proto, ok := packet.ProtoNumber(p.Proto)
		if !ok || !cni.Publishable(proto) {
			return s, fmt.Errorf("pod %s: protocol %q cannot be published; tcp, udp and sctp can",
				r.Name, p.Proto)
		}
		s.Publish = append(s.Publish,
			pod.Publish{Proto: uint8(proto), Host: p.Host, HostPort: p.HostPort, Port: p.Port})
	}
	return s, nil
}

func podView(p pod.Pod) api.Pod {
	v := api.Pod{
		Network: p.Network, Container: p.Container, Name: p.Name, Netns: p.Netns, IfName: p.IfName,
		HostIf: p.HostIf, Index: p.Index,
		Addrs: p.Addrs, Gateways: p.Gateway, MAC: p.MAC.String(), HostMAC: p.HostMAC.String(),
		MTU: p.MTU, Labels: p.Labels,
		Rates: api.Rates{In: p.Rates.In, Out: p.Rates.Out, InBurst: p.Rates.InBurst,
			OutBurst: p.Rates.OutBurst},
		Created: p.Created,
	}
	if p.RuntimeMovesInterface {
		v.InnerIf = p.InnerIf()
	}
	for _, pub := range p.Publish {
		v.Publish = append(v.Publish,
			api.Publish{Proto: packet.Proto(pub.Proto).String(), Host: pub.Host,
				HostPort: pub.HostPort, Port: pub.Port})
	}
	return v
}

// byAddress returns the names of all pods.
func (p *pods) byAddress() map[netip.Addr]string {
	names := map[netip.Addr]string{}
	for _, one := range p.manager.List() {
		for _, a := range one.Addrs {
			names[a] = "pod:" + one.Name
		}
	}
	return names
}

// tables lists the tables of labels.
func (p *pods) tables() (all []api.Table) {
	tables := p.labels.all()
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		t := api.Table{Name: name, Label: true, Entries: []api.TableEntry{}}
		for _, e := range tables[name] {
			t.Entries = append(t.Entries, api.TableEntry{Prefix: e.Prefix.String()})
		}
		all = append(all, t)
	}
	return all
}
