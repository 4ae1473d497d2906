package cluster

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
)

// ReadMember reads what the host got when it joined a cluster, nil if it has not, and the ranges of
// its pods. The member is there with an error, too, if only its ranges cannot be read.
func ReadMember(dir string) (m *disk.Member, ranges []netip.Prefix, err error) {
	m, err = disk.ReadMember(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	n, err := cluster.Decode[cluster.Node](m.Node)
	if err != nil {
		return m, nil, err
	}
	return m, n.Ranges, nil
}

// Connect is Open for a member of a cluster, with a client of its weir-stores. It sets what c has
// of the member and of this program: all but Dir, Parts, Reach, Log and Problems. Close ends the
// client.
func Connect(m *disk.Member, c Config) (*Service, error) {
	credential, err := identity.ParseCredential([]byte(m.Credential))
	if err != nil {
		return nil, err
	}
	own, err := cluster.Decode[cluster.Node](m.Node)
	if err != nil {
		return nil, err
	}
	c.Trust = cluster.Trust{Cluster: m.Cluster, Epoch: m.Epoch, Admins: m.Admins}
	for _, der := range credential.CAs {
		key, err := identity.CAKey(der)
		if err != nil {
			return nil, err
		}
		c.Trust.CA = append(c.Trust.CA, cluster.Key(key))
	}
	secured, err := credential.ClientTLS()
	if err != nil {
		return nil, err
	}
	d := &dialer{seen: map[string]netip.AddrPort{}}
	var s *Service
	var to *client.Client
	began := time.Now()
	stores := func() []string {
		heard := to.State().Heard
		if heard.Before(began) {
			heard = began
		}
		return storesOf(s.Stores(), m.Stores, time.Since(heard))
	}
	to, err = client.New(client.Config{Name: m.Name, Cluster: m.Cluster.String(), Stores: stores,
		TLS: secured, Dial: d.dial})
	if err != nil {
		return nil, err
	}
	c.Name, c.Serial, c.Key = m.Name, own.Serial, ed25519.PrivateKey(credential.Key)
	c.Client, c.Stores = to, func() []netip.AddrPort { return d.addresses(stores()) }
	c.Revoked, c.Version, c.Random = m.Revoked, buildVersion(), random
	if s, err = Open(c); err != nil {
		return nil, errors.Join(err, to.Close())
	}
	s.disconnect = to.Close
	return s, nil
}

// dialer dials weir-stores, and remembers the addresses that names had.
type dialer struct {
	eyeballs.Dialer

	mu   sync.Mutex                // its place in the lock order: agent/doc.go
	seen map[string]netip.AddrPort // guarded by mu
}

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := d.DialContext(ctx, network, address)
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
func (d *dialer) addresses(stores []string) (all []netip.AddrPort) {
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

// firstStoresAfter is after how long without the store a host tries the weir-stores that it joined
// by, beside those that the store names. A list that is wrong cannot be put right by those on it.
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
