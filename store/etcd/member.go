package etcd

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/weirnet/weir/internal/flock"
	"github.com/weirnet/weir/store"
)

// defaultQuota is what hosts and administrators may fill of the database. 10,000 pods on 1,000
// hosts are about 2 MiB. History is the rest, and Maintenance shortens it in time.
const defaultQuota = 1 << 30

// etcdQuota returns the quota of etcd itself, at which it refuses removals, too: a quarter more.
// Only removals use that quarter, and what was under way when the quota was reached.
func etcdQuota(quota int64) int64 { return quota + quota/4 }

// MemberConfig describes a member. Its clients are in the same directory: it listens for them on a
// unix socket only.
type MemberConfig struct {
	Dir       string        // data, and the sockets client and peer
	Name      string        // ""; weir
	Heartbeat time.Duration // 0: 300 ms, for disks that need long for an fsync
	Quota     int64         // bytes of the database without the reserve; 0: 1 GiB
	Log       *zap.Logger   // nil: none
	Peers     *Peers        // nil: a member of one
}

// Peers is what a member of several needs.
type Peers struct {
	Listen    string            // https://ADDRESS:PORT
	Advertise string            // https://HOST:PORT
	Initial   map[string]string // what each member advertises, this one included, by name
	Existing  bool              // the others run already, and have this one as a new member
	// Certificate, Key and CA are files in PEM. Every member has a certificate of the CA for
	// ServerName.
	Certificate, Key, CA string
	ServerName           string
}

// Member is an etcd in this process.
type Member struct {
	etcd  *embed.Etcd
	held  *os.File // the lock on dir
	dir   string
	quota int64 // without the reserve
}

// Start starts a member and waits until it serves, or the context ends. If another process runs it,
// the error is ErrRuns.
func Start(ctx context.Context, c MemberConfig) (*Member, error) {
	if c.Quota == 0 {
		c.Quota = defaultQuota
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	cfg, err := c.embedded()
	if err != nil {
		return nil, fmt.Errorf("etcd in %s: %w", c.Dir, err)
	}
	// etcd itself would take the sockets away from the one that runs, and wait for it for ever.
	held, err := flock.Open(c.Dir, ErrRuns)
	if err != nil {
		return nil, fmt.Errorf("etcd in %s: %w", c.Dir, err)
	}
	etcd, err := embedEtcd(cfg, c.Log)
	if err != nil {
		held.Close()
		return nil, fmt.Errorf("etcd in %s: %w", c.Dir, err)
	}
	m := &Member{etcd, held, c.Dir, c.Quota}
	select {
	case <-etcd.Server.ReadyNotify():
		return m, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = ctx.Err()
	}
	m.Close()
	return nil, fmt.Errorf("etcd in %s: %w", c.Dir, err)
}

// embedded returns the configuration of package embed.
func (c MemberConfig) embedded() (*embed.Config, error) {
	if c.Heartbeat == 0 {
		c.Heartbeat = 300 * time.Millisecond
	}
	if c.Name == "" {
		c.Name = "weir"
	}
	cfg := embed.NewConfig()
	cfg.Name = c.Name
	cfg.Dir = filepath.Join(c.Dir, "data")
	clients, peers := socket(c.Dir, "client"), socket(c.Dir, "peer")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	// etcd takes the address of a peer's socket from the host of the URL. Without one it listens at
	// an abstract socket, to which every process on this host can connect.
	cfg.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peers.Path}}
	cfg.AdvertisePeerUrls = []url.URL{peers}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs = uint(c.Heartbeat.Milliseconds())
	cfg.ElectionMs = 10 * cfg.TickMs
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	cfg.QuotaBackendBytes = etcdQuota(c.Quota)
	cfg.MaxTxnOps = store.MaxOperations
	if c.Peers == nil {
		return cfg, nil
	}
	return cfg, c.Peers.apply(cfg)
}

func (p *Peers) apply(cfg *embed.Config) error {
	listen, err := url.Parse(p.Listen)
	if err != nil {
		return err
	}
	advertise, err := url.Parse(p.Advertise)
	if err != nil {
		return err
	}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*listen}, []url.URL{*advertise}
	var initial []string
	for name, at := range p.Initial {
		initial = append(initial, name+"="+at)
	}
	slices.Sort(initial)
	cfg.InitialCluster = strings.Join(initial, ",")
	if p.Existing {
		cfg.ClusterState = embed.ClusterStateFlagExisting
	}
	// Only another member may be a peer: the certificate of a host has not the name.
	cfg.PeerTLSInfo = transport.TLSInfo{CertFile: p.Certificate, KeyFile: p.Key,
		TrustedCAFile: p.CA, ClientCertAuth: true, ServerName: p.ServerName,
		AllowedHostnames: []string{p.ServerName}, SkipClientSANVerify: true}
	return nil
}

func socket(dir, name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(dir, name)}
}

// Endpoint returns what a client connects to.
func (m *Member) Endpoint() string { return EndpointIn(m.dir) }

// EndpointIn returns what a client of the member in a directory connects to.
func EndpointIn(dir string) string {
	u := socket(dir, "client")
	return u.String()
}

// Failed has the error that ends the member.
func (m *Member) Failed() <-chan error { return m.etcd.Err() }

// Leader reports whether the member is the leader, and whether it knows one.
func (m *Member) Leader() (is, known bool) {
	leader := m.etcd.Server.Leader()
	return leader == m.etcd.Server.MemberID(), leader != 0
}

// Size returns how many bytes the member's database has on the disk.
func (m *Member) Size() int64 { return m.etcd.Server.Backend().Size() }

// Close stops the member and waits for it.
func (m *Member) Close() {
	m.etcd.Close()
	m.held.Close()
}
