package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
	"github.com/weirnet/weir/store/server"
)

// peerServerName is in the certificates of weir-stores only (package identity).
const peerServerName = "weir-store"

// startMember starts the embedded member; nil if the etcd is external. Two processes cannot run the
// same one: bbolt locks its file.
func (h home) startMember(ctx context.Context, c config, log *zap.Logger) (*etcd.Member,
	error) {
	if c.Etcd != nil {
		return nil, nil
	}
	m := etcd.MemberConfig{Dir: h.file(etcdDir), Name: c.Name, Heartbeat: time.Duration(c.Heart)}
	if c.Peers != nil {
		files, err := h.peerFiles()
		if err != nil {
			return nil, err
		}
		files.Listen, files.Advertise = c.Peers.Listen, c.Peers.Advertise
		files.Initial, files.Existing = c.Peers.Initial, c.Peers.Existing
		m.Peers = files
	}
	m.Log = log
	return etcd.Start(ctx, m)
}

// etcdLog logs what etcd says of warnings and errors.
func etcdLog() (*zap.Logger, error) {
	c := zap.NewProductionConfig()
	c.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	c.Encoding = "console"
	c.EncoderConfig = zap.NewDevelopmentEncoderConfig()
	c.DisableCaller, c.DisableStacktrace = true, true
	return c.Build()
}

// peerFiles writes the credential in the form that etcd reads.
func (h home) peerFiles() (*etcd.Peers, error) {
	own, err := identity.ReadCredential(h.file(storeFile))
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(own.Key)
	if err != nil {
		return nil, err
	}
	var cas []byte
	for _, ca := range own.CAs {
		cas = append(cas, pemOf("CERTIFICATE", ca)...)
	}
	p := &etcd.Peers{Certificate: h.file("peer.pem"), Key: h.file("peer-key.pem"),
		CA: h.file("peer-ca.pem"), ServerName: peerServerName}
	return p, errors.Join(atomicfile.Write(p.Certificate, pemOf("CERTIFICATE", own.Certificate)),
		atomicfile.Write(p.Key, pemOf("PRIVATE KEY", der)), atomicfile.Write(p.CA, cas))
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// serve runs until a signal, or until something ends that should not.
func serve(ctx context.Context, c *call) error {
	if err := c.parse(); err != nil {
		return err
	}
	h := home(c.dir)
	if err := h.make(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(c.messages, nil))
	held, err := h.hold()
	if err != nil {
		return err
	}
	defer held.Close()
	kept, err := h.finish()
	if err != nil {
		return err
	}
	if kept != "" {
		log.Warn("a restore that was cut off is finished", "before", kept)
	}
	cfg, err := h.config()
	if err != nil {
		return err
	}
	if err := h.checkStore(cfg); err != nil {
		return err
	}
	logged, err := etcdLog()
	if err != nil {
		return err
	}
	member, err := h.startMember(ctx, cfg, logged)
	if err != nil {
		return err
	}
	if member != nil {
		defer member.Close()
	}
	d, err := h.driverOf(cfg, store.MaxCopy)
	if err != nil {
		return err
	}
	defer d.Close()
	seen, err := h.readRevocations()
	if err != nil {
		return err
	}
	if err := seen.trust(h); err != nil {
		return err
	}
	var maintenance *etcd.Maintenance // nil: who runs an external etcd keeps space free in it
	if member != nil {
		maintenance = member.Maintenance(d)
	}
	s, err := h.server(cfg, d, seen, maintenance, log)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return err
	}
	log.Info("weir-store serves", "address", listener.Addr())
	return h.run(ctx, cfg.Metrics, d, member, maintenance, s, seen, listener, log)
}

// server returns what serves hosts. Without the CA's key, no one can join here.
func (h home) server(cfg config, d *etcd.Driver, seen *revocations, maintenance *etcd.Maintenance,
	log *slog.Logger) (*server.Server, error) {
	own, err := identity.ReadCredential(h.file(storeFile))
	if err != nil {
		return nil, err
	}
	config, err := own.ServerTLS()
	if err != nil {
		return nil, err
	}
	c := server.Config{Store: d, Name: cluster.Watched, TLS: config, Cluster: members.ClusterOf,
		Admit: seen.admit, Changed: seen.note, Log: log}
	if maintenance != nil {
		c.PercentFull = maintenance.PercentFull
	}
	ca, err := h.ca()
	if errors.Is(err, fs.ErrNotExist) {
		return server.New(c)
	}
	if err != nil {
		return nil, err
	}
	if err := checkPools(cfg.Pools); err != nil {
		return nil, fmt.Errorf("%s: the pool %w", h.file(configFile), err)
	}
	j := members.NewJoiner(d, ca)
	j.Pools, c.Join = cfg.Pools, j.Join
	j.Revoked = func() []cluster.Serial { return seen.all().Hosts }
	j.Bound, j.Note = seen.certificates, seen.note
	j.Save = func() { _ = seen.saveBound() } // keep tries again, and complains
	s, err := server.New(c)
	if err == nil {
		j.PercentFull = s.PercentFull
	}
	return s, err
}

// run runs the parts of a weir-store until the context or one of them ends.
func (h home) run(ctx context.Context, metrics string, d *etcd.Driver, member *etcd.Member,
	maintenance *etcd.Maintenance, s *server.Server, seen *revocations, listener net.Listener,
	log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	complain := func(err error) { log.Warn("weir-store", "err", err) }
	var parts sync.WaitGroup
	part := func(run func(context.Context) error) {
		parts.Go(func() { cancel(run(ctx)) })
	}
	part(s.Run)
	part(func(context.Context) error { return s.Serve(listener) })
	part((&members.TokenExpiry{Store: d, Now: time.Now, Log: complain}).Run)
	part((&members.TrialExpiry{Store: d, Now: time.Now, Log: complain}).Run)
	part((&members.TextCleanup{Store: d, Keys: d.Keys, Now: time.Now, Log: complain}).Run)
	part(func(ctx context.Context) error { return h.keep(ctx, d, complain) })
	part(func(ctx context.Context) error { return seen.keep(ctx, complain) })
	if metrics != "" {
		part(func(ctx context.Context) error {
			// any user of the host may have taken the address
			if err := serveMetrics(ctx, metrics, s, member,
				maintenance.PercentFull); ctx.Err() == nil {
				complain(fmt.Errorf("metrics are not served: %w; restart weir-store", err))
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}
	if member != nil {
		part(func(ctx context.Context) error { return maintenance.Run(ctx, complain) })
		part(func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case err := <-member.Failed():
				return fmt.Errorf("etcd: %w", err)
			}
		})
	}
	<-ctx.Done()
	s.Close()
	parts.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// caOf returns the CA for a command that needs its key.
func (h home) caOf() (*identity.CA, error) {
	ca, err := h.ca()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the CA's key is not on this host: run this where %s is", caFile)
	}
	return ca, err
}
