package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// words is an option that may be repeated.
type words []string

// String implements flag.Value.
func (w *words) String() string { return strings.Join(*w, ",") }

// Set implements flag.Value.
func (w *words) Set(s string) error {
	*w = append(*w, s)
	return nil
}

// founding is what init was asked for.
type founding struct {
	config
	admin, adminFile string
	signed           bool
	copyDir, sign    string // init from a host's copy
	withoutKeys      bool
	texts            words
}

// initialise makes a cluster. It may be run again after it was interrupted.
func initialise(ctx context.Context, c *call) error {
	f, err := c.founding()
	if err != nil {
		return err
	}
	h := home(c.dir)
	if err := h.make(); err != nil {
		return err
	}
	if f.copyDir != "" {
		return h.fromCopy(ctx, c, f)
	}
	if err := h.mayInit(ctx, f); err != nil {
		return err
	}
	ca, admin, err := h.identities(f)
	if err != nil {
		return err
	}
	if err := h.writeConfig(f.config); err != nil {
		return err
	}
	d, stop, err := h.alone(ctx, f.config)
	if err != nil {
		return err
	}
	defer stop()
	id, err := hex.DecodeString(ca.Cluster())
	if err != nil || len(id) != len(cluster.Serial{}) {
		return fmt.Errorf("%s: the CA is not one of a cluster", h.file(caFile))
	}
	doc := cluster.Identity{ID: cluster.Serial(id), Epoch: 1, CA: [][]byte{ca.Certificate()},
		Pools: f.Pools, Stores: []string{f.Address}}
	peer, err := admin.Peer()
	if err != nil {
		return err
	}
	if err := found(ctx, d, doc, peer); err != nil {
		return err
	}
	if f.signed {
		if err := h.lock(ctx, d, admin); err != nil {
			return err
		}
		if _, err := h.keys(ctx, d); err != nil {
			return err
		}
	}
	fmt.Fprintf(c.out, "cluster %s\nweir-store: %s\nadministrator %s: %s\n", doc.ID, f.Address,
		f.admin, f.adminFile)
	return nil
}

// mayInit returns an error for a store that is in use: init would replace its config.json. What an
// interrupted run has begun is not in use.
func (h home) mayInit(ctx context.Context, f *founding) error {
	if h.runs(ctx) {
		return fmt.Errorf("weir-store serves here: the cluster is made already; to make another "+
			"one, stop it and move %s away", h)
	}
	had, err := h.config()
	if err != nil {
		return nil // it is not there yet, or not whole
	}
	if had.Peers != nil || (had.Etcd == nil) != (f.Etcd == nil) {
		return fmt.Errorf("%s is that of a store with other members or another etcd: the cluster "+
			"is made already; to make another one, move %s away", h.file(configFile), h)
	}
	f.Heart = had.Heart
	return nil
}

// found writes the first documents. It is not an error if they are those of this cluster.
func found(ctx context.Context, s store.Store, doc cluster.Identity, admin identity.Peer) error {
	err := members.CreateCluster(ctx, s, doc, admin)
	if !errors.Is(err, members.ErrExists) {
		return err
	}
	got, readErr := s.Read(ctx, cluster.IdentityKey, 0)
	if readErr != nil || len(got.Entries) == 0 {
		return errors.Join(err, readErr)
	}
	there, decodeErr := cluster.Decode[cluster.Identity](got.Entries[0].Value)
	if decodeErr != nil || there.ID != doc.ID {
		return errors.Join(err, decodeErr)
	}
	return nil
}

func (c *call) founding() (*founding, error) {
	f := &founding{}
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	var pools, endpoints words
	var e external
	c.flags.StringVar(&f.Name, "name", host, "name of this host")
	c.flags.StringVar(&f.Address, "address", "", "HOST:PORT that hosts connect to; default: "+
		"the name of this host and port "+defaultPort)
	c.flags.StringVar(&f.Listen, "listen", "", "ADDRESS:PORT to listen at; default: all "+
		"addresses, the port of -address")
	c.flags.Var(&pools, "pool", "NETWORK:LENGTH that hosts get ranges of pod addresses from, "+
		"such as 10.64.0.0/12:24; may be repeated")
	c.flags.StringVar(&f.admin, "admin", "admin", "name of the first administrator")
	c.flags.StringVar(&f.adminFile, "admin-file", "/etc/weir/admin.pem", "file that the "+
		"credential of the first administrator is written to")
	c.flags.StringVar(&f.copyDir, "from-copy", "", "make a cluster again whose stores are all "+
		"lost, with the copy of a host in `DIR`, usually /var/lib/weir/store; ca.pem of the "+
		"cluster has to be in the directory of the store")
	c.flags.Var(&f.texts, "texts", "with -from-copy, `DIR` with rules that other hosts have; may "+
		"be repeated")
	c.flags.StringVar(&f.sign, "sign", "", "with -from-copy, `FILE` with the credential of an "+
		"administrator that signs the rules; default: that of -admin-file")
	c.flags.BoolVar(&f.withoutKeys, "without-keys", false, "with -from-copy, leave out the keys "+
		"of administrators, which someone else has written into the store of a cluster whose "+
		"rules are not signed")
	c.flags.BoolVar(&f.signed, "signed", false, "hosts demand the signature of an "+
		"administrator on all rules: first of this one, then see weir cluster keys")
	c.flags.Var(&endpoints, "etcd", "URL of an external etcd; may be repeated. Default: embedded")
	c.flags.StringVar(&e.Certificate, "etcd-cert", "", "certificate for the external etcd")
	c.flags.StringVar(&e.Key, "etcd-key", "", "key of the certificate of -etcd-cert")
	c.flags.StringVar(&e.CA, "etcd-ca", "", "certificate of the external etcd's CA")
	if err := c.parse(0); err != nil {
		return nil, err
	}
	for _, name := range []string{f.Name, f.admin} {
		if err := cluster.CheckName(name); err != nil {
			return nil, err
		}
	}
	if f.Address == "" {
		f.Address = f.Name
	}
	f.Address = withPort(f.Address)
	if f.Listen == "" {
		_, port, err := net.SplitHostPort(f.Address)
		if err != nil {
			return nil, err
		}
		f.Listen = ":" + port
	}
	if len(endpoints) > 0 {
		e.Endpoints = endpoints
		f.Etcd = &e
	}
	f.Pools, err = parsePools(pools)
	return f, err
}

// parsePools returns the pools, not nil if there are none: then no host gets a range.
func parsePools(texts []string) (pools []cluster.Pool, err error) {
	pools = []cluster.Pool{}
	for _, text := range texts {
		i := strings.LastIndexByte(text, ':')
		if i < 0 || !strings.Contains(text[:i], "/") {
			return nil, fmt.Errorf("-pool %s is not NETWORK:LENGTH, such as 10.64.0.0/12:24", text)
		}
		var p cluster.Pool
		if p.Supernet, err = netip.ParsePrefix(text[:i]); err != nil {
			return nil, fmt.Errorf("-pool %s: %w", text, err)
		}
		if p.Bits, err = strconv.Atoi(text[i+1:]); err != nil {
			return nil, fmt.Errorf("-pool %s: the length: %w", text, err)
		}
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("-pool %s: %w", text, err)
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// identities returns the CA and the administrator. It makes what does not exist.
func (h home) identities(f *founding) (*identity.CA, *identity.Credential, error) {
	ca, err := h.ca()
	if errors.Is(err, fs.ErrNotExist) {
		if ca, err = identity.NewCA(identity.NewClusterID()); err != nil {
			return nil, nil, err
		}
		text, err := ca.MarshalPEM()
		if err != nil {
			return nil, nil, err
		}
		if err := atomicfile.Write(h.file(caFile), text); err != nil {
			return nil, nil, err
		}
	} else if err != nil {
		return nil, nil, err
	}
	if _, err := ensure(ca, h.file(storeFile), identity.ID{Kind: identity.Store,
		Name: f.Name}); err != nil {
		return nil, nil, err
	}
	admin, err := ensure(ca, f.adminFile, identity.ID{Kind: identity.Admin, Name: f.admin})
	return ca, admin, err
}

// ensure returns the credential in a file, or writes a new one. One of another cluster is refused.
func ensure(ca *identity.CA, path string, id identity.ID) (*identity.Credential, error) {
	c, err := readCredential(path)
	if errors.Is(err, fs.ErrNotExist) {
		return issueTo(ca, path, id)
	}
	if err != nil {
		return nil, err
	}
	c.CAs = [][]byte{ca.Certificate()}
	p, err := c.Verify()
	if err != nil || p.ID != id {
		return nil, fmt.Errorf("%s exists already, and is not %v of this cluster: move it away",
			path, id)
	}
	return c, nil
}

func issueTo(ca *identity.CA, path string, id identity.ID) (*identity.Credential, error) {
	c, err := identity.Issue(ca, id)
	if err != nil {
		return nil, err
	}
	text, err := c.MarshalPEM()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	return c, atomicfile.Write(path, text)
}

// alone starts the member if there is one, which no one else runs, and connects to the store.
func (h home) alone(ctx context.Context, c config) (*etcd.Driver, func(), error) {
	member, err := h.startMember(ctx, c, nil)
	if err != nil {
		return nil, nil, err
	}
	d, err := h.driver(c)
	if err != nil {
		if member != nil {
			member.Close()
		}
		return nil, nil, err
	}
	return d, func() {
		d.Close()
		if member != nil {
			member.Close()
		}
	}, nil
}
