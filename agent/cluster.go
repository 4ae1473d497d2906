package agent

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/rule"
	"github.com/weirnet/weir/store/client"
	desired "github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
)

// hostPeer begins the names of peers that are hosts of the cluster.
const hostPeer = "host:"

// joined reads what the host got when it joined a cluster; nil if it has not. The ranges of its
// pods come from there.
func joined(c *Config) (*disk.Member, error) {
	m, err := disk.ReadMember(c.Paths.Store())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n, err := desired.Decode[desired.Node](m.Node)
	if err == nil && len(n.Ranges) > 0 {
		c.Settings.Pods.Ranges = n.Ranges
	}
	return m, err
}

// dialed dials weir-stores, and remembers the addresses that names had.
type dialed struct {
	dialer eyeballs.Dialer

	mu   sync.Mutex                // its place in the lock order: doc.go
	seen map[string]netip.AddrPort // guarded by mu
}

func (d *dialed) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if to, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.seen[address] = netip.AddrPortFrom(to.AddrPort().Addr().Unmap(), uint16(to.Port))
	}
	return conn, nil
}

// addresses are those of weir-stores, as far as they are known.
func (d *dialed) addresses(stores []string) (all []netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range stores {
		if a, err := netip.ParseAddrPort(s); err == nil {
			all = append(all, a)
		} else if a, ok := d.seen[s]; ok {
			all = append(all, a)
		}
	}
	return all
}

// followCluster makes what follows the store of the cluster that the host has joined.
func (n *Node) followCluster(m *disk.Member) error {
	credential, err := identity.ParseCredential([]byte(m.Credential))
	if err != nil {
		return err
	}
	own, err := desired.Decode[desired.Node](m.Node)
	if err != nil {
		return err
	}
	trust := desired.Trust{Cluster: m.Cluster, Epoch: m.Epoch, Admins: m.Admins}
	for _, der := range credential.CAs {
		key, err := identity.CAKey(der)
		if err != nil {
			return err
		}
		trust.CA = append(trust.CA, desired.Key(key))
	}
	secured, err := credential.Client()
	if err != nil {
		return err
	}
	d := &dialed{seen: map[string]netip.AddrPort{}}
	var service *cluster.Service
	var c *client.Client
	began := time.Now()
	stores := func() []string {
		heard := c.State().Heard
		if heard.Before(began) {
			heard = began
		}
		return storesOf(service.Stores(), m.Stores, time.Since(heard))
	}
	c, err = client.New(client.Config{Name: m.Name, Cluster: m.Cluster.String(), Stores: stores,
		TLS: secured, Dial: d.dial})
	if err != nil {
		return err
	}
	service, err = cluster.Open(cluster.Config{Name: m.Name, Dir: n.config.Paths.Store(),
		Trust: trust, Serial: own.Serial, Key: ed25519.PrivateKey(credential.Key), Client: c,
		Stores: func() []netip.AddrPort { return d.addresses(stores()) }, Parts: n.clusterParts(),
		Version: buildVersion(), Random: random, Log: n.log, Problems: &n.problems})
	if err != nil {
		return errors.Join(err, c.Close())
	}
	n.cluster, n.store = service, c
	return nil
}

// firstStoresAfter is after how long without the store a host tries the weir-stores that it joined
// by, beside those that the store names: a list that is wrong cannot be put right by those on it.
const firstStoresAfter = time.Minute

// storesOf returns the addresses of weir-stores to try: those that the store names, and those of
// the invitation.
func storesOf(named, joined []string, silent time.Duration) []string {
	if len(named) > 0 && silent < firstStoresAfter {
		return named
	}
	all := slices.Concat(named, joined)
	slices.Sort(all)
	return slices.Compact(all)
}

// buildVersion returns the version of this program.
func buildVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// random is in [0, 1).
func random() float64 {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

// clusterParts are the other parts as the cluster needs them.
func (n *Node) clusterParts() cluster.Parts {
	return cluster.Parts{Parse: n.rules.Parse,
		Enforce: func(l cluster.Load) error {
			return n.rules.Enforce(versionOf(l), l.Trial, l.Reverted)
		},
		Confirm:           n.rules.Keep,
		CheckConnectivity: n.checkConnectivity,
		Labels:            n.pods.SetOthers, Shared: n.shared.set, Host: n.setHost,
		Peers: n.hostPeers,
		Pods:  n.ownPods, Known: n.clearUnfilled}
}

// checkConnectivity returns why rules would cut this host off from a weir-store, or others from one
// on this host.
func (n *Node) checkConnectivity(l cluster.Load, stores []netip.AddrPort, others []netip.Addr,
	s *desired.Session) (string, error) {
	var needed []rules.RequiredConn
	for _, to := range stores {
		if !n.links.IsMine(to.Addr()) {
			needed = append(needed, rules.RequiredConn{To: to})
			continue
		}
		for _, from := range others {
			needed = append(needed, rules.RequiredConn{From: from, To: to})
		}
	}
	var session *api.Session
	if s != nil {
		session = &api.Session{From: s.From, To: s.To}
	}
	return n.explain.CheckConnectivity(versionOf(l), needed, session)
}

func versionOf(l cluster.Load) rules.Version {
	return rules.Version{Set: l.Set, Strict: l.Strict, Source: l.Source}
}

// sharedRules returns the rules of the cluster with which the node starts.
func (n *Node) sharedRules() (rules.Version, bool) {
	if n.cluster == nil {
		return rules.Version{}, false
	}
	l, ok := n.cluster.First()
	return versionOf(l), ok
}

// setHost makes a host of the cluster a peer, or removes it.
func (n *Node) setHost(h desired.HostChange) error {
	name := hostPeer + h.Name
	if h.Node == nil || len(h.Node.Ranges) == 0 {
		return n.peers.Forget(name)
	}
	p := api.AddPeer{Name: name, Key: h.Node.WireGuard.String(), Pods: h.Node.Ranges}
	for _, a := range h.Addrs {
		p.Endpoints = append(p.Endpoints, a.String())
	}
	return n.peers.Record(p)
}

// hostPeers returns the names of the hosts that are peers.
func (n *Node) hostPeers() (all []string) {
	for _, name := range n.peers.Names() {
		if host, ok := strings.CutPrefix(name, hostPeer); ok {
			all = append(all, host)
		}
	}
	return all
}

// ownPods returns the pods of this host, once those of an earlier run are taken over.
func (n *Node) ownPods() (all []desired.Pod, known bool) {
	if len(n.config.Settings.Pods.Ranges) > 0 && !n.pods.Begun() {
		return nil, false
	}
	for _, p := range n.pods.Living() {
		all = append(all, desired.Pod{Name: p.Name, Addrs: p.Addrs, Labels: p.Labels})
	}
	return all, true
}

// beginCluster follows the store until the context ends. stop waits for that.
func (n *Node) beginCluster(ctx context.Context) (stop func() error) {
	if n.cluster == nil {
		return func() error { return nil }
	}
	n.announce()
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.cluster.Run(ctx)
	}()
	return func() error {
		<-done
		return n.closeCluster()
	}
}

func (n *Node) closeCluster() error {
	if n.cluster == nil {
		return nil
	}
	return errors.Join(n.store.Close(), n.cluster.Close())
}

// maxEndpoints is how many addresses of the host others try.
const maxEndpoints = 8

// announce says where the tunnel of this host is reached: at the addresses of its interfaces that
// others may reach.
func (n *Node) announce() {
	if n.cluster == nil {
		return
	}
	s := n.config.Settings
	addrs := []netip.AddrPort{}
	for _, i := range n.links.Interfaces() {
		if i.Name == s.Overlay.Name || strings.HasPrefix(i.Name, "pod:") || !s.Host.Guards(i.Name) {
			continue
		}
		for _, a := range i.Addrs {
			if a.Addr().IsGlobalUnicast() && !n.pods.Has(a.Addr()) && len(addrs) < maxEndpoints {
				addrs = append(addrs, netip.AddrPortFrom(a.Addr(), s.Overlay.Port))
			}
		}
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	n.cluster.SetEndpoints(slices.Compact(addrs))
}

// podsChanged has the services and the cluster hear of the pods of this host. It does not wait.
func (n *Node) podsChanged() {
	n.services.Changed()
	if n.cluster != nil {
		n.cluster.PodsChanged()
	}
}

// labels are the tables that no rule set defines: of labels, and shared ones.
func (n *Node) labels() map[string][]rule.TableEntry {
	all := n.pods.Labels()
	maps.Copy(all, n.shared.all())
	return all
}

// acceptRemovals removes what the host holds though the store lost it.
func (n *Node) acceptRemovals() (api.Done, error) {
	if n.cluster == nil {
		return api.Done{}, errNoCluster{}
	}
	return n.cluster.Accept()
}

// restart has the node begin again, with what is on its disk.
func (n *Node) restart() (api.Done, error) {
	select {
	case n.again <- struct{}{}:
	default: // it will
	}
	return api.Done{Version: api.Version}, nil
}

// errNoCluster refuses what only a host of a cluster can do.
type errNoCluster struct{}

func (errNoCluster) Error() string { return "this host has not joined a cluster" }

// Hint returns how to join a cluster.
func (errNoCluster) Hint() string { return "weir join TOKEN@HOST" }
