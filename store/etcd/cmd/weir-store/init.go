package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/podrange"
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

// initRequest is what init was asked for.
type initRequest struct {
	config
	admin, adminFile string
	signed           bool
	copyDir, sign    string // init from a host's copy
	withoutKeys      bool
	texts            words
}

// initialise makes a cluster. It may be run again after it was interrupted.
func initialise(ctx context.Context, c *call) error {
	f, err := c.initRequest()
	if err != nil {
		return err
	}
	h := home(c.dir)
	if err := h.make(); err != nil {
		return err
	}
	if h.runs(ctx) {
		return fmt.Errorf("weir-store serves here: the cluster is made already; to make another "+
			"one, stop it and move %s away", h)
	}
	held, err := h.hold()
	if err != nil {
		return err
	}
	defer held.Close()
	if _, err := h.finish(); err != nil {
		return err
	}
	if f.copyDir != "" {
		return h.fromCopy(ctx, c, f)
	}
	had, err := h.mayInit(f)
	if err != nil {
		return err
	}
	ca, admin, err := h.identities(f)
	if err != nil {
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
	made, err := found(ctx, d, doc, peer)
	if err != nil && f.Etcd != nil {
		return fmt.Errorf("etcd at %s: %w", strings.Join(f.Etcd.Endpoints, " "), err)
	}
	if err != nil {
		return err
	}
	f.Version = had.Version
	if made && had.Version != 0 && !reflect.DeepEqual(had, f.config) {
		return fmt.Errorf("the cluster is made already, and %s differs from what this command "+
			"would write: change it there and restart weir-store; to make another cluster, move "+
			"%s away", h.file(configFile), h)
	}
	if err := h.writeConfig(f.config); err != nil {
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

// mayInit returns the config.json that is there, and an error for a store that is in use. What an
// interrupted run has begun is not in use.
func (h home) mayInit(f *initRequest) (had config, err error) {
	if had, err = h.config(); err != nil {
		return config{}, nil // it is not there yet, or not whole
	}
	if had.Peers != nil || (had.Etcd == nil) != (f.Etcd == nil) {
		return had, fmt.Errorf("%s is that of a store with other members or another etcd: the "+
			"cluster is made already; to make another one, move %s away", h.file(configFile), h)
	}
	f.Heart, f.Metrics = had.Heart, had.Metrics
	return had, nil
}

// found writes the first documents, or reports that those of this cluster are there.
func found(ctx context.Context, s store.Store, doc cluster.Identity, admin identity.Peer) (
	made bool, err error) {
	err = members.CreateCluster(ctx, s, doc, admin)
	if !errors.Is(err, members.ErrExists) {
		return false, err
	}
	got, readErr := s.Read(ctx, cluster.IdentityKey, 0)
	if readErr != nil || len(got.Entries) == 0 {
		return false, errors.Join(err, readErr)
	}
	there, decodeErr := cluster.Decode[cluster.Identity](got.Entries[0].Value)
	if decodeErr != nil || there.ID != doc.ID {
		return false, errors.Join(err, decodeErr)
	}
	return true, nil
}

func (c *call) initRequest() (*initRequest, error) {
	f := &initRequest{}
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
		"addresses, the port of --address")
	c.flags.Var(&pools, "pool", "NETWORK:LENGTH that hosts get ranges of pod addresses from, "+
		"such as 10.64.0.0/12:24; one of IPv4 and one of IPv6")
	c.flags.StringVar(&f.admin, "admin", "admin", "name of the first administrator")
	c.flags.StringVar(&f.adminFile, "admin-file", "/etc/weir/admin.pem", "file that the "+
		"credential of the first administrator is written to")
	c.flags.StringVar(&f.copyDir, "from-copy", "", "make a cluster again whose stores are all "+
		"lost, with the copy of a host in `DIR`, usually /var/lib/weir/store; ca.pem of the "+
		"cluster has to be in the directory of the store")
	c.flags.Var(&f.texts, "texts", "with --from-copy, `DIR` with rules that other hosts have; may "+
		"be repeated")
	c.flags.StringVar(&f.sign, "sign", "", "with --from-copy, `FILE` with the credential of an "+
		"administrator that signs the rules; default: that of --admin-file")
	c.flags.BoolVar(&f.withoutKeys, "without-keys", false, "with --from-copy, leave out the keys "+
		"of administrators, which someone else has written into the store of a cluster whose "+
		"rules are not signed")
	c.flags.BoolVar(&f.signed, "signed", false, "hosts demand the signature of an "+
		"administrator on all rules: first of this one, then see weir cluster keys")
	c.flags.Var(&endpoints, "etcd", "URL of an external etcd; may be repeated. Default: embedded")
	c.flags.StringVar(&e.Certificate, "etcd-cert", "", "certificate for the external etcd")
	c.flags.StringVar(&e.Key, "etcd-key", "", "key of the certificate of --etcd-cert")
	c.flags.StringVar(&e.CA, "etcd-ca", "", "certificate of the external etcd's CA")
	if err := c.parse(); err != nil {
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
	if err := checkAddress(f.Address); err != nil {
		return nil, c.wrong("--address %v", err)
	}
	if f.Listen == "" {
		_, port, err := net.SplitHostPort(f.Address)
		if err != nil {
			return nil, err
		}
		f.Listen = ":" + port
	} else if err := checkListen(f.Listen); err != nil {
		return nil, c.wrong("--listen %v", err)
	}
	if err := c.checkTogether(); err != nil {
		return nil, err
	}
	for _, at := range endpoints {
		if u, err := url.Parse(at); err != nil || u.Host == "" {
			return nil, c.wrong("--etcd %q is not a URL, such as https://10.0.0.1:2379", at)
		}
	}
	if len(endpoints) > 0 {
		e.Endpoints = endpoints
		f.Etcd = &e
	}
	if f.Pools, err = parsePools(pools); err != nil {
		return nil, c.wrong("%v", err)
	}
	return f, nil
}

// checkTogether refuses flags of init that would have no effect.
func (c *call) checkTogether() error {
	given := map[string]bool{}
	c.flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for _, pair := range [][2]string{{"texts", "from-copy"}, {"sign", "from-copy"},
		{"without-keys", "from-copy"}, {"etcd-ca", "etcd"}, {"etcd-cert", "etcd"},
		{"etcd-cert", "etcd-key"}, {"etcd-key", "etcd-cert"}} {
		if given[pair[0]] && !given[pair[1]] {
			return c.wrong("--%s needs --%s", pair[0], pair[1])
		}
	}
	if given["from-copy"] && given["signed"] {
		return c.wrong("--signed and --from-copy: whether rules are signed follows from the copy")
	}
	return nil
}

// parsePools returns the pools, not nil if there are none: then no host gets a range.
func parsePools(texts []string) (pools []cluster.Pool, err error) {
	pools = []cluster.Pool{}
	for _, text := range texts {
		i := strings.LastIndexByte(text, ':')
		if i < 0 || !strings.Contains(text[:i], "/") {
			return nil, fmt.Errorf("--pool %s is not NETWORK:LENGTH, such as 10.64.0.0/12:24", text)
		}
		var p cluster.Pool
		if p.Supernet, err = netip.ParsePrefix(text[:i]); err != nil {
			return nil, fmt.Errorf("--pool %s: %w", text, err)
		}
		if p.Bits, err = strconv.Atoi(text[i+1:]); err != nil {
			return nil, fmt.Errorf("--pool %s: the length: %w", text, err)
		}
		pools = append(pools, p)
		if err := checkPools(pools); err != nil {
			return nil, fmt.Errorf("--pool %w", err)
		}
	}
	return pools, nil
}

// checkPools refuses pools of which a host would get ranges that it cannot use.
func checkPools(pools []cluster.Pool) error {
	for i, p := range pools {
		is := fmt.Sprintf("%v:%d", p.Supernet, p.Bits)
		if err := errors.Join(p.Check(), checkPods(p)); err != nil {
			return fmt.Errorf("%s: %w", is, err)
		}
		for _, other := range pools[:i] {
			if other.Supernet.Overlaps(p.Supernet) {
				return fmt.Errorf("%s overlaps %v", is, other.Supernet)
			}
			if is4 := p.Supernet.Addr().Is4(); is4 == other.Supernet.Addr().Is4() {
				family := map[bool]string{true: "IPv4", false: "IPv6"}[is4]
				return fmt.Errorf("%s: a host has one range of %s, and there is the pool %v:%d "+
					"already: take one larger network", is, family, other.Supernet, other.Bits)
			}
		}
	}
	return nil
}

// checkPods refuses a pool whose ranges no host could use.
func checkPods(p cluster.Pool) error {
	if p.Supernet.Addr().BitLen()-p.Bits < 2 {
		return fmt.Errorf("ranges of /%d are too small: a range needs at least four addresses",
			p.Bits)
	}
	if special, ok := podrange.Special(p.Supernet); ok {
		return fmt.Errorf("%v overlaps %v, whose addresses no pod can have; take a private "+
			"network such as 10.64.0.0/12", p.Supernet, special)
	}
	return nil
}

// identities returns the CA and the administrator. It makes what does not exist.
func (h home) identities(f *initRequest) (*identity.CA, *identity.Credential, error) {
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
	c, err := identity.ReadCredential(path)
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
