package pods

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	eyeballs "github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/pod"
	"github.com/weirnet/weir/pod/dns"
)

// attached enters a pod in the tables of its labels and in the names.
func (s *Service) attached(p pod.Pod) error {
	if err := s.labels.attached(p); err != nil {
		return err
	}
	s.names.Add(p)
	return nil
}

// detached removes a pod from the names and from the tables of its labels.
func (s *Service) detached(p pod.Pod) error {
	s.names.Remove(p)
	return s.labels.detached(p)
}

// relabelled moves a pod to the tables and names of other labels.
func (s *Service) relabelled(before, after pod.Pod) error {
	if err := s.labels.relabelled(before, after); err != nil {
		return err
	}
	s.names.Add(after)
	return nil
}

// ServeDNS answers pods that ask for names, on the gateway addresses. stop ends it.
func (s *Service) ServeDNS() (stop func() error, err error) {
	if len(s.config.Settings.Ranges) == 0 || !s.config.Settings.DNS {
		return func() error { return nil }, nil
	}
	m := s.manager.Load()
	if m == nil {
		return nil, errLater
	}
	c := dns.Config{Names: &s.names, Ranges: s.config.Settings.Ranges,
		Resolvers: (&resolvers{file: resolvConf}).get}
	for _, r := range m.Ranges() {
		c.Gateways = append(c.Gateways, r.Gateway)
	}
	server, err := dns.Listen(c)
	if err != nil {
		return nil, errors.Join(err, errPort53)
	}
	s.dns.Store(server)
	return func() error {
		s.dns.Store(nil)
		return server.Close()
	}, nil
}

var errPort53 = errors.New("another name server may have the port; [pods] dns = false leaves it")

// nameservers are what a pod with these addresses asks for names, none without a name server: the
// gateways of the ranges, of the families that it has.
func (s *Service) nameservers(m *pod.Manager, addrs []netip.Addr) (all []netip.Addr) {
	if s.dns.Load() == nil {
		return nil
	}
	for _, r := range m.Ranges() {
		if slices.ContainsFunc(addrs, func(a netip.Addr) bool {
			return a.Is4() == r.Gateway.Is4()
		}) {
			all = append(all, r.Gateway)
		}
	}
	return all
}

const resolvConf = "/etc/resolv.conf"

// resolvers are the name servers of the host, read again when the file has changed.
type resolvers struct {
	file string

	mu      sync.Mutex       // its place in the lock order: agent/doc.go
	checked time.Time        // guarded by mu
	changed time.Time        // guarded by mu; of the file
	servers []netip.AddrPort // guarded by mu
}

func (r *resolvers) get() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Sub(r.checked) < time.Second {
		return r.servers
	}
	r.checked = now
	f, err := os.Open(r.file)
	if err != nil {
		return r.servers
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || r.servers != nil && info.ModTime().Equal(r.changed) {
		return r.servers
	}
	r.changed, r.servers = info.ModTime(), eyeballs.ParseConfig(f, "").Servers
	return r.servers
}
