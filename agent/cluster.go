package agent

import (
	"context"
	"maps"
	"net/netip"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/cluster"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/rule"
	desired "github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
)

// followCluster makes what follows the store of the cluster that the host has joined.
func (n *Node) followCluster(m *disk.Member) (err error) {
	s := n.config.Settings
	n.cluster, err = cluster.Connect(m, cluster.Config{Dir: n.config.Paths.Store(),
		Parts: n.clusterParts(), Log: n.log, Problems: &n.problems,
		Reach: cluster.Reach{Interfaces: n.links.Interfaces, Guards: s.Host.Guards,
			IsPod: n.pods.InRange, Tunnel: s.Overlay.Name, Port: s.Overlay.Port}})
	return err
}

// clusterParts are the other parts as the cluster needs them.
func (n *Node) clusterParts() cluster.Parts {
	hosts := cluster.HostPeers{Peers: n.peers}
	return cluster.Parts{Parse: n.rules.Parse,
		Enforce: func(l cluster.Load) error {
			return n.rules.EnforceClusterRules(versionOf(l), l.Trial, l.Reverted)
		},
		Confirm:           n.rules.ConfirmClusterRules,
		CheckConnectivity: n.checkConnectivity, IsMe: n.links.IsMe,
		Labels: n.pods.SetOtherHostLabels, Shared: n.shared.Set, Host: hosts.Set,
		Peers: hosts.Names,
		Pods:  n.ownPods, FirstCopy: n.clearUnfilled}
}

// addPeer adds or changes a peer that is not a host of the cluster.
func (n *Node) addPeer(r api.AddPeer) (api.Done, error) {
	if n.cluster != nil {
		if err := n.cluster.CheckByHand(r.Name); err != nil {
			return api.Done{}, err
		}
	}
	return n.peers.Add(r)
}

// removePeer removes a peer that is not a host of the cluster.
func (n *Node) removePeer(r api.RemovePeer) (api.Done, error) {
	if n.cluster != nil {
		if err := n.cluster.CheckByHand(r.Name); err != nil {
			return api.Done{}, err
		}
	}
	return n.peers.Remove(r)
}

// checkConnectivity returns why rules would refuse a connection that the host needs.
func (n *Node) checkConnectivity(l cluster.Load, needed []api.RequiredConn,
	session *api.Session) (string, error) {
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
	l, ok := n.cluster.LastConfirmed()
	return versionOf(l), ok
}

// ownPods returns the pods of this host, once those of an earlier run are taken over.
func (n *Node) ownPods() (all []desired.Pod, known bool) {
	if len(n.config.Settings.Pods.Ranges) > 0 && !n.pods.TakenOver() {
		return nil, false
	}
	for _, p := range n.pods.LivePods() {
		all = append(all, desired.Pod{Name: p.Name, Addrs: p.Addrs, Labels: p.Labels})
	}
	return all, true
}

// beginCluster follows the store until the context ends. stop waits for that.
func (n *Node) beginCluster(ctx context.Context) (stop func() error) {
	if n.cluster == nil {
		return func() error { return nil }
	}
	n.cluster.Announce()
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
	return n.cluster.Close()
}

// announce has the other hosts of the cluster hear where the tunnel of this one is reached.
func (n *Node) announce() {
	if n.cluster != nil {
		n.cluster.Announce()
	}
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
	maps.Copy(all, n.shared.All())
	return all
}

// lookupTable returns the value of an address in a table: of the rules, of the cluster or of a
// label.
func (n *Node) lookupTable(table string, a netip.Addr) (value uint32, found bool) {
	if value, found = n.rules.LookupTable(table, a); !found {
		value, found = n.shared.Lookup(table, a)
	}
	return value, found || n.pods.HasLabel(table, a)
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

// noticeJoin has the node begin again if the host has joined a cluster since the start: weir join
// could not ask for that before the API was served.
func (n *Node) noticeJoin() {
	now, _, err := cluster.ReadMember(n.config.Paths.Store())
	if err != nil || now == nil || n.member != nil && n.member.Credential == now.Credential {
		return
	}
	n.log.Info("the host has joined a cluster meanwhile", "name", now.Name)
	_, _ = n.restart() // it only asks
}

// errNoCluster refuses what only a host of a cluster can do.
type errNoCluster struct{}

func (errNoCluster) Error() string { return "this host has not joined a cluster" }

// Hint returns how to join a cluster.
func (errNoCluster) Hint() string { return "weir join TOKEN@HOST" }
