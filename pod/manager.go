package pod

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/internal/nl"
)

// Config is what a Manager needs to know of its node.
type Config struct {
	Dir    string         // where the records live
	Ranges []netip.Prefix // at most one of each family
	MTU    int            // of pods that ask for none; 0 means 1500
	Failed func(error)    // is told what failed after Leave had returned; may be nil
}

// Manager keeps the pods of one node. It works in the network namespace in which New was called.
type Manager struct {
	config  Config
	store   store
	conn    *nl.Conn
	sys     sysctls
	forward firewall.Forwarder
	now     func() time.Time

	leaving sync.WaitGroup // of Leave

	mu    sync.Mutex
	pools []*Pool
	pods  map[string]*Pod
	held  map[netip.Addr]bool      // handed out by Hold, not attached yet
	busy  map[string]chan struct{} // keys with a call under way; closed when it ends
}

// ErrNotFound means that there is no such pod.
var ErrNotFound = errors.New("no such pod")

// New opens the records, takes the gateway addresses, and brings records, interfaces and fast path into agreement (see
// Reconcile).
func New(config Config, forward firewall.Forwarder) (*Manager, error) {
	if config.MTU == 0 {
		config.MTU = 1500
	}
	if config.Failed == nil {
		config.Failed = func(error) {}
	}
	m := &Manager{config: config, forward: forward, now: time.Now, pods: map[string]*Pod{}, held: map[netip.Addr]bool{}, busy: map[string]chan struct{}{}}
	families := map[bool]bool{}
	for _, r := range config.Ranges {
		pool, err := NewPool(r)
		if err != nil {
			return nil, err
		}
		if families[r.Addr().Is4()] {
			return nil, fmt.Errorf("pod range %s: there can be only one range of a family", r)
		}
		families[r.Addr().Is4()] = true
		m.pools = append(m.pools, pool)
	}
	var err error
	if m.store, err = openStore(config.Dir); err != nil {
		return nil, err
	}
	if m.sys, err = openSysctls("ipv4", "ipv6"); err != nil {
		return nil, err
	}
	if m.conn, err = nl.Open(nil); err != nil {
		return nil, errors.Join(err, m.sys.close())
	}
	if err := m.begin(); err != nil {
		m.conn.Close()
		return nil, errors.Join(err, m.sys.close())
	}
	return m, nil
}

// begin brings the host into the state in which pods can come.
func (m *Manager) begin() error {
	if err := m.store.saveGateways(m.gateways()); err != nil {
		return err
	}
	if err := m.setUpHost(); err != nil {
		return err
	}
	return m.Reconcile()
}

func (m *Manager) gateways() []netip.Addr {
	var list []netip.Addr
	for _, p := range m.pools {
		list = append(list, p.Gateway())
	}
	return list
}

// Close gives back what the Manager holds. Pods keep their network.
func (m *Manager) Close() {
	m.Wait()
	m.conn.Close()
	m.sys.close()
}

// Wait waits until what Leave left to do is done.
func (m *Manager) Wait() { m.leaving.Wait() }

// Attach gives a container its network and returns it. A pod that is attached already, to the same namespace, is returned as it is.
func (m *Manager) Attach(spec Spec) (Pod, error) {
	if err := spec.check(); err != nil {
		return Pod{}, err
	}
	key := spec.Container + "/" + spec.IfName
	release := m.claim(key)
	defer release()

	m.mu.Lock()
	old := m.pods[key]
	m.mu.Unlock()
	if old != nil && old.Ready {
		if old.Netns != spec.Netns {
			return Pod{}, fmt.Errorf("pod %s is attached already, to %s; detach it first", old.Name, old.Netns)
		}
		return *old, nil
	}
	p, err := m.reserve(key, spec)
	if err != nil {
		return Pod{}, err
	}
	if err := m.install(p); err != nil {
		return Pod{}, errors.Join(err, m.forget(p))
	}
	return *p, nil
}

// install makes a reserved pod real. On failure only the reservation is left.
func (m *Manager) install(p *Pod) error {
	if err := m.store.save(p); err != nil {
		return err
	}
	if err := connect(m.conn, m.sys, p); err != nil {
		return err
	}
	undo := func(err error) error {
		return errors.Join(err, m.forward.DeleteEndpoint(p.Index), removeHostEnd(m.conn, p.Key))
	}
	if err := m.forward.SetEndpoint(p.Endpoint()); err != nil {
		return undo(fmt.Errorf("pod %s: fast path: %w", p.Name, err))
	}
	ready := *p
	ready.Ready = true
	if err := m.store.save(&ready); err != nil {
		return undo(err)
	}
	m.mu.Lock()
	p.Ready = true
	m.mu.Unlock()
	if len(p.Publish) == 0 {
		return nil
	}
	if err := m.publish(); err != nil {
		m.mu.Lock()
		p.Ready = false
		m.mu.Unlock()
		return undo(err)
	}
	return nil
}

// reserve chooses addresses and enters the pod in the list, not ready.
func (m *Manager) reserve(key string, spec Spec) (*Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.clashLocked(key, spec); err != nil {
		return nil, err
	}
	p := &Pod{Spec: spec, Key: key, HostIf: hostIf(key), Created: m.now().UTC()}
	p.Addrs = slices.Clone(spec.Addrs)
	mac, hostMAC := macs(key)
	p.HostMAC = hostMAC
	if p.MAC == nil {
		p.MAC = mac
	}
	if p.MTU == 0 {
		p.MTU = m.config.MTU
	}
	if err := m.assignLocked(p); err != nil {
		return nil, err
	}
	m.pods[key] = p
	return p, nil
}

// assignLocked takes the wanted addresses from the pools and picks one of each family that was not asked for.
func (m *Manager) assignLocked(p *Pod) error {
	var taken []netip.Addr
	giveBack := func() {
		for _, a := range taken {
			m.giveLocked(a)
		}
	}
	for _, pool := range m.pools {
		is4 := pool.Gateway().Is4()
		i := slices.IndexFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == is4 })
		switch {
		case i >= 0 && p.Extern && !pool.Prefix().Contains(p.Addrs[i]):
			// Somebody else's range; the gateway is still ours, reached over the link.
		case i >= 0 && m.held[p.Addrs[i]]:
			delete(m.held, p.Addrs[i])
			taken = append(taken, p.Addrs[i])
		case i >= 0:
			if err := pool.Take(p.Addrs[i]); err != nil {
				giveBack()
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			taken = append(taken, p.Addrs[i])
		case p.Extern:
			continue
		default:
			a, err := pool.Pick()
			if err != nil {
				giveBack()
				return fmt.Errorf("pod %s: %w", p.Name, err)
			}
			p.Addrs, taken = append(p.Addrs, a), append(taken, a)
		}
		p.Gateway = append(p.Gateway, pool.Gateway())
	}
	for _, a := range p.Addrs {
		if !slices.ContainsFunc(p.Gateway, func(g netip.Addr) bool { return g.Is4() == a.Is4() }) {
			giveBack()
			return fmt.Errorf("pod %s: address %s has no pod range of its family on this node; add one to [pods] ranges", p.Name, a)
		}
	}
	if len(p.Addrs) == 0 {
		return fmt.Errorf("pod %s: no address to give; set [pods] ranges", p.Name)
	}
	return nil
}

func (m *Manager) giveLocked(a netip.Addr) {
	for _, pool := range m.pools {
		pool.Give(a)
	}
}

// clashLocked refuses what another pod has already: its name, an address or a published port.
func (m *Manager) clashLocked(key string, spec Spec) error {
	for _, o := range m.pods {
		if o.Key == key {
			continue
		}
		if o.Name == spec.Name && o.Container != spec.Container {
			return fmt.Errorf("pod name %s is taken by container %s; choose another name", spec.Name, o.Container)
		}
		for _, a := range spec.Addrs {
			if slices.Contains(o.Addrs, a) {
				return fmt.Errorf("pod %s: address %s is in use by pod %s", spec.Name, a, o.Name)
			}
		}
		for _, p := range spec.Publish {
			for _, q := range o.Publish {
				if p.Proto == q.Proto && p.HostPort == q.HostPort && hostsMeet(p.Host, q.Host) {
					return fmt.Errorf("pod %s: host port %d is published for pod %s already", spec.Name, p.HostPort, o.Name)
				}
			}
		}
	}
	return nil
}

// hostsMeet says whether one packet could be meant for both host addresses.
func hostsMeet(a, b netip.Addr) bool {
	if !a.IsValid() || !b.IsValid() || a == b {
		return true
	}
	return a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}

// Detach takes the network of a container away. A pod that does not exist is no error: whoever asks wants it gone.
func (m *Manager) Detach(container, ifName string) error {
	p, release := m.seize(container, ifName)
	defer release()
	if p == nil {
		return nil
	}
	return errors.Join(m.withdraw(p), m.dismantle(p))
}

// Leave is Detach for somebody in a hurry: when it returns nobody reaches the pod any more, and its interface, which the kernel
// takes some tens of milliseconds to remove, goes soon after. Its addresses are given to nobody before that. If that fails, Config.Failed
// is told, and the next Reconcile tries again.
func (m *Manager) Leave(container, ifName string) error {
	p, release := m.seize(container, ifName)
	if p == nil {
		release()
		return nil
	}
	if err := m.withdraw(p); err != nil {
		release()
		return err
	}
	m.leaving.Go(func() {
		defer release()
		if err := m.dismantle(p); err != nil {
			m.config.Failed(err)
		}
	})
	return nil
}

// seize claims a pod, nil if there is none.
func (m *Manager) seize(container, ifName string) (p *Pod, release func()) {
	if ifName == "" {
		ifName = "eth0"
	}
	key := container + "/" + ifName
	release = m.claim(key)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[key], release
}

// withdraw takes a pod out of everything by which it is reached. What is left is noted as incomplete, so that a Reconcile removes it
// even if this process does not live to do it.
func (m *Manager) withdraw(p *Pod) error {
	m.mu.Lock()
	p.Ready = false
	gone := *p
	m.mu.Unlock()
	err := errors.Join(m.store.save(&gone), m.forward.DeleteEndpoint(p.Index))
	if len(p.Publish) > 0 {
		err = errors.Join(err, m.publish())
	}
	if err != nil {
		return fmt.Errorf("detach pod %s: %w", p.Name, err)
	}
	return nil
}

// dismantle removes the interface of a pod, with it its routes, and then gives back its addresses.
func (m *Manager) dismantle(p *Pod) error {
	err := removeHostEnd(m.conn, p.Key)
	if err == nil {
		err = m.forget(p)
	}
	if err != nil {
		return fmt.Errorf("detach pod %s: %w", p.Name, err)
	}
	return nil
}

// forget gives back the addresses of a pod whose interfaces are gone, and removes its record.
func (m *Manager) forget(p *Pod) error {
	m.mu.Lock()
	delete(m.pods, p.Key)
	for _, a := range p.Addrs {
		m.giveLocked(a)
	}
	m.mu.Unlock()
	return m.store.remove(p.Key)
}

// publish tells the fast path all published ports.
func (m *Manager) publish() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []firewall.Published
	for _, p := range m.pods {
		if p.Ready {
			all = append(all, p.Published()...)
		}
	}
	if err := m.forward.SetPublished(all); err != nil {
		return fmt.Errorf("published ports: %w", err)
	}
	return nil
}

// Find returns a pod by container and interface, or by container alone, or by name: of several the oldest.
func (m *Manager) Find(name, ifName string) (Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found *Pod
	for _, p := range m.pods {
		if p.Ready && (p.Container == name || p.Name == name) && (ifName == "" || p.IfName == ifName) && (found == nil || byAge(p, found) < 0) {
			found = p
		}
	}
	if found == nil {
		return Pod{}, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return *found, nil
}

func byAge(a, b *Pod) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Key, b.Key))
}

// List returns the pods that are ready, oldest first.
func (m *Manager) List() []Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]Pod, 0, len(m.pods))
	for _, p := range m.pods {
		if p.Ready {
			list = append(list, *p)
		}
	}
	slices.SortFunc(list, func(a, b Pod) int { return byAge(&a, &b) })
	return list
}

// claim waits until no other call works on key, and returns what lets the next one in.
func (m *Manager) claim(key string) (release func()) {
	for {
		m.mu.Lock()
		other, taken := m.busy[key]
		if !taken {
			done := make(chan struct{})
			m.busy[key] = done
			m.mu.Unlock()
			return func() {
				m.mu.Lock()
				delete(m.busy, key)
				m.mu.Unlock()
				close(done)
			}
		}
		m.mu.Unlock()
		<-other
	}
}
