package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
)

// config is what init and grow write for serve: the file config.json.
type config struct {
	Version int       `json:"version"`
	Name    string    `json:"name"`
	Listen  string    `json:"listen"`             // for hosts
	Address string    `json:"address"`            // what hosts connect to
	Peers   *peers    `json:"peers,omitempty"`    // of an embedded member of several
	Etcd    *external `json:"etcd,omitempty"`     // instead of an embedded member
	Heart   duration  `json:"heartbeat,omitzero"` // 0: 300 ms
	Metrics string    `json:"metrics,omitempty"`  // an address for Prometheus; "": none
	// Pools are what hosts that join get ranges of; nil: they are not known, and no host joins.
	Pools []cluster.Pool `json:"pools,omitzero"`
}

// peers is how the embedded member reaches the others.
type peers struct {
	Listen    string            `json:"listen"`
	Advertise string            `json:"advertise"`
	Initial   map[string]string `json:"initial"`
	Existing  bool              `json:"existing,omitempty"`
}

// external is an etcd that someone else runs.
type external struct {
	Endpoints   []string `json:"endpoints"`
	Certificate string   `json:"certificate,omitempty"` // files in PEM
	Key         string   `json:"key,omitempty"`
	CA          string   `json:"ca,omitempty"`
}

// duration is a time.Duration as text.
type duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// defaultPort is that of weir-store.
const defaultPort = "7477"

// home is the directory of a store: mode 0700, since it has keys and the sockets of etcd.
type home string

func (h home) file(name string) string { return filepath.Join(string(h), name) }

const (
	caFile      = "ca.pem"    // the CA with its key
	storeFile   = "store.pem" // the credential of this weir-store
	configFile  = "config.json"
	epochFile   = "epoch" // the highest epoch that this weir-store has served
	revokedFile = "ended" // serial numbers that it knows as revoked; older than the word
	boundFile   = "hosts" // certificates of hosts that it knows as in force
	etcdDir     = "etcd"
)

// make makes the directory. One that others can read is refused, not changed: what was in it may
// be known.
func (h home) make() error {
	if err := os.MkdirAll(string(h), 0o700); err != nil {
		return err
	}
	info, err := os.Stat(string(h))
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o: others could read the keys; make it 0700", h,
			info.Mode().Perm())
	}
	return nil
}

func (h home) config() (c config, err error) {
	text, err := os.ReadFile(h.file(configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return c, fmt.Errorf("%s does not exist: run weir cluster init first, or name the "+
			"directory with --dir", h.file(configFile))
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", h.file(configFile), err)
	}
	if c.Version != 1 {
		return c, fmt.Errorf("%s: version %d is not known", h.file(configFile), c.Version)
	}
	return c, nil
}

func (h home) writeConfig(c config) error {
	c.Version = 1
	text, err := json.MarshalIndent(c, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(h.file(configFile), append(text, '\n'))
}

// ca returns the CA, or fs.ErrNotExist: its key may lie elsewhere.
func (h home) ca() (*identity.CA, error) { return identity.ReadCA(h.file(caFile)) }

// maxContent is how much a command reads of the store: all that the database of an embedded member
// may have.
const maxContent = 1280 << 20

// driver connects a command to the store: that of the weir-store that runs here, or the external
// one.
func (h home) driver(c config) (*etcd.Driver, error) { return h.driverOf(c, maxContent) }

// driverOf returns a driver that reads a number of bytes at once.
func (h home) driverOf(c config, maxRead int) (*etcd.Driver, error) {
	if c.Etcd == nil {
		return etcd.Open(etcd.Config{MaxRead: maxRead, Client: clientv3.Config{
			Endpoints: []string{etcd.EndpointIn(h.file(etcdDir))}}})
	}
	secured, err := c.Etcd.tls()
	if err != nil {
		return nil, err
	}
	return etcd.Open(etcd.Config{MaxRead: maxRead,
		Client: clientv3.Config{Endpoints: c.Etcd.Endpoints, TLS: secured}})
}

func (e *external) tls() (*tls.Config, error) {
	if e.Certificate == "" && e.CA == "" {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		text, err := os.ReadFile(e.CA)
		if err != nil {
			return nil, err
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate", e.CA)
		}
	}
	if e.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(e.Certificate, e.Key)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// runs reports whether an embedded member of this directory runs, with a majority of the others or
// without: someone listens at its socket. Another one would take that away from it.
func (h home) runs(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(eyeballs.Dialer).DialContext(ctx, "unix",
		filepath.Join(h.file(etcdDir), "client"))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// connect returns the store of a directory, which runs.
func (c *call) connect(ctx context.Context) (home, config, *etcd.Driver, error) {
	h := home(c.dir)
	cfg, err := h.config()
	if err != nil {
		return h, cfg, nil, err
	}
	d, err := h.driver(cfg)
	if err != nil {
		return h, cfg, nil, err
	}
	limited, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if _, err := d.Read(limited, cluster.IdentityKey, 0); err != nil {
		d.Close()
		return h, cfg, nil, fmt.Errorf("the store does not answer; does weir-store serve run? %w",
			err)
	}
	return h, cfg, d, nil
}

const connectTimeout = 5 * time.Second

// withPort adds the default port to an address without one.
func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), defaultPort)
}

// checkAddress refuses what is not HOST:PORT that others can connect to.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	_, notAddress := netip.ParseAddr(host)
	isName := host != "" && len(host) <= 253 && !strings.ContainsFunc(host, func(r rune) bool {
		return r != '-' && r != '.' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') &&
			(r < 'A' || r > 'Z')
	})
	if err != nil || !isPort(port) || notAddress != nil && !isName {
		return fmt.Errorf("%q is not HOST:PORT, such as hostA.example.org:7477, 192.0.2.1:7477 or "+
			"[2001:db8::1]:7477", address)
	}
	return nil
}

// checkListen refuses what is not [ADDRESS]:PORT to listen at.
func checkListen(at string) error {
	host, port, err := net.SplitHostPort(at)
	_, notAddress := netip.ParseAddr(host)
	if err != nil || !isPort(port) || host != "" && notAddress != nil {
		return fmt.Errorf("%q is not ADDRESS:PORT or :PORT", at)
	}
	return nil
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}
