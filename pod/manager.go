package pod

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
)

// Config describes the node of a Manager.
type Config struct {
	Dir    string         // where the records live
	Ranges []netip.Prefix // at most one of each family
	MTU    int            // of pods that ask for none; 0 means 1500
	// kind of the pairs that are made, LinkVeth or LinkNetkit; "" means LinkVeth. Pods that are
	// there keep theirs.
	Link string
	// called with each failure to take a pod away, also where a call returns it: the next Sweep
	// tries again, and has to come. It is also called with published ports that are held back since
	// something else has them. It may be nil
	OnError       func(error)
	OnRecordError func(error) // called with records that cannot be used or written; may be nil
	// Labels returns the labels of the pod with these addresses, whose record cannot be used, or
	// nil if they are not known. May be nil.
	Labels func([]netip.Addr) map[string]string
	// OnAttach is called for every pod before it can send. OnDetach is called for each of them when
	// it cannot send any more and before another pod can get its addresses. An error of OnAttach
	// refuses the pod, one of OnDetach keeps its addresses until a later call succeeds. Both may be
	// called again for the same pod, and OnDetach for one without an OnAttach. Either may be nil.
	OnAttach, OnDetach func(Pod) error
	// OnLabel is called when the labels of a pod change, with the pod as it was and as it will be.
	// After an error the labels before count; OnDetach may be called for either. May be nil.
	OnLabel func(before, after Pod) error
}

// Manager keeps the pods of one node. It works in the network namespace in which New was called.
type Manager struct {
	config  Config
	store   store
	conn    *nl.Conn
	sys     sysctls
	forward forward.Forwarder
	now     func() time.Time
	home    string // identity of the namespace in which New was called
	// called before each step of an attach or a detach; tests crash there
	step func(string)

	detaching sync.WaitGroup // of DetachAsync

	mu       sync.Mutex
	pools    []*Pool
	pods     map[string]*Pod
	reserved map[netip.Addr]bool      // handed out by Reserve, not attached yet
	holds    bool                     // published ports are held back: see PublishHeld
	busy     map[string]chan struct{} // keys with a call under way; closed when it ends
}

// ErrNotFound means that there is no such pod.
var ErrNotFound = errors.New("no such pod")

// New opens the records, takes the gateway addresses, and brings records, interfaces and fast path
// into agreement (see Reconcile).
func New(config Config, forward forward.Forwarder) (*Manager, error) {
	if config.MTU == 0 {
		config.MTU = 1500
	}
	if config.OnError == nil {
		config.OnError = func(error) {}
	}
	if config.OnRecordError == nil {
		config.OnRecordError = func(error) {}
	}
	if config.Labels == nil {
		config.Labels = func([]netip.Addr) map[string]string { return nil }
	}
	for _, f := range []*func(Pod) error{&config.OnAttach, &config.OnDetach} {
		if *f == nil {
			*f = func(Pod) error { return nil }
		}
	}
	if config.OnLabel == nil {
		config.OnLabel = func(_, _ Pod) error { return nil }
	}
	m := &Manager{config: config, forward: forward, now: time.Now, step: func(string) {},
		pods: map[string]*Pod{}, reserved: map[netip.Addr]bool{}, busy: map[string]chan struct{}{}}
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
	if m.home, err = homeID(); err != nil {
		return nil, err
	}
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

// begin prepares the host for pods. Gateway addresses of earlier ranges go with the last pod that
// may need them.
func (m *Manager) begin() error {
	earlier := m.earlierGateways()
	m.recordGateways(earlier)
	if err := m.setUpHost(); err != nil {
		return err
	}
	if err := m.takeOver(); err != nil || len(earlier) == 0 {
		return err
	}
	needed, idle := m.splitNeeded(earlier)
	if err := deleteGateways(m.conn, idle); err != nil {
		m.config.OnRecordError(fmt.Errorf("gateway addresses of earlier ranges: %w", err))
		return nil // Remove tries again
	}
	m.recordGateways(needed)
	return nil
}

// homeID identifies the namespace of the calling thread.
func homeID() (string, error) {
	ns, err := nl.CurrentNS()
	if err != nil {
		return "", err
	}
	defer ns.Close()
	return ns.ID()
}

// Close releases the Manager's sockets and files. Pods keep their network.
func (m *Manager) Close() {
	m.Wait()
	m.conn.Close()
	m.sys.close()
}

// Wait waits until the work of DetachAsync is done.
func (m *Manager) Wait() { m.detaching.Wait() }

// Get returns the pod of an interface of a container, "eth0" if ifName is empty, and whether it is
// ready.
func (m *Manager) Get(container, ifName string) (Pod, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pods[keyOf(container, ifName)]
	if p == nil || !p.Ready {
		return Pod{}, false
	}
	return *p, true
}

// keyOf returns what identifies a pod.
func keyOf(container, ifName string) string { return container + "/" + cmp.Or(ifName, "eth0") }

// Find returns a pod by container and interface, or by container alone, or by name: of several one
// of that container before one of that name, and then the oldest.
func (m *Manager) Find(name, ifName string) (Pod, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var found *Pod
	for _, p := range m.pods {
		if !p.Ready || p.Container != name && p.Name != name || ifName != "" && p.IfName != ifName {
			continue
		}
		is, was := p.Container == name, found != nil && found.Container == name
		if found == nil || is && !was || is == was && byAge(p, found) < 0 {
			found = p
		}
	}
	if found == nil {
		return Pod{}, fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return *found, nil
}

// Holds reports whether there is anything of a pod: it is attached, or being attached or removed.
func (m *Manager) Holds(container, ifName string) bool {
	return m.get(keyOf(container, ifName)) != nil
}

// Full returns the ranges of which no address is free.
func (m *Manager) Full() (ranges []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pool := range m.pools {
		if pool.Full() {
			ranges = append(ranges, pool.Prefix())
		}
	}
	return ranges
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

// claim waits until no other call works on key, or until ctx ends, and returns the function that
// ends the claim.
func (m *Manager) claim(ctx context.Context, key string) (release func(), err error) {
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
			}, nil
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: another request for this pod has not ended: %w", key,
				ctx.Err())
		}
	}
}
