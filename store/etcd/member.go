package etcd

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/weirnet/weir/store"
)

// quota is how large the database may become. 10,000 pods on 1,000 hosts are about 2 MiB, and an
// hour of a thousand changes of 1 KiB a second before it is compacted would be more than that: such
// a rate lasts seconds.
const quota = 1 << 30

// MemberConfig describes a member of one, which listens on unix sockets only.
type MemberConfig struct {
	Dir       string        // data, and the sockets client and peer
	Heartbeat time.Duration // 0: 300 ms, for disks that need long for an fsync
	Log       *zap.Logger   // nil: none
}

// Member is an etcd in this process.
type Member struct {
	etcd *embed.Etcd
	dir  string
}

// Start starts a member and waits until it serves, or the context ends.
func Start(ctx context.Context, c MemberConfig) (*Member, error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = 300 * time.Millisecond
	}
	if c.Log == nil {
		c.Log = zap.NewNop()
	}
	cfg := embed.NewConfig()
	cfg.Name = "weir"
	cfg.Dir = filepath.Join(c.Dir, "data")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(c.Log)
	clients, peers := socket(c.Dir, "client"), socket(c.Dir, "peer")
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.TickMs = uint(c.Heartbeat.Milliseconds())
	cfg.ElectionMs = 10 * cfg.TickMs
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModePeriodic, "1h"
	cfg.QuotaBackendBytes = quota
	cfg.MaxTxnOps = store.MaxOperations
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcd in %s: %w", c.Dir, err)
	}
	m := &Member{etcd, c.Dir}
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

func socket(dir, name string) url.URL {
	return url.URL{Scheme: "unix", Path: filepath.Join(dir, name)}
}

// Endpoint returns what a client connects to.
func (m *Member) Endpoint() string {
	u := socket(m.dir, "client")
	return u.String()
}

// Close stops the member and waits for it.
func (m *Member) Close() { m.etcd.Close() }
