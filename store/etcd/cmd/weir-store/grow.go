package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// defaultPeerPort is where members of an embedded etcd reach each other.
const defaultPeerPort = "7478"

// bundle is what another host needs to become a store host: the file that grow writes and adopt
// reads. It has a private key.
type bundle struct {
	Config     config `json:"config"`
	Credential string `json:"credential"` // PEM
	// Keys is the list of keys of administrators that the host that made the file knows.
	Keys cluster.KeyList `json:"keys,omitzero"`
}

// grow adds a member. The new one is a learner until it has everything: a member that does not
// start takes no part in a majority.
func grow(ctx context.Context, c *call) error {
	own := c.flags.String("peer", "", "HOST:PORT at which this host's member is reached by "+
		"others; default: the host of its address, port "+defaultPeerPort)
	other := c.flags.String("peer-port", defaultPeerPort, "port at which the new member is "+
		"reached by others")
	replace := c.flags.Bool("replace", false, "remove the member at this HOST first, which "+
		"has lost its disk, and one that was added by mistake")
	wait := c.flags.Duration("wait", 10*time.Minute, "how long to wait for the new member")
	if err := c.parse(); err != nil {
		return err
	}
	name, address, file := c.args[0], withPort(c.args[1]), c.args[2]
	if err := cluster.CheckName(name); err != nil {
		return err
	}
	if err := checkAddress(address); err != nil {
		return c.wrong("%v", err)
	}
	if *own != "" {
		if err := checkAddress(*own); err != nil {
			return c.wrong("--peer %v", err)
		}
	}
	if !isPort(*other) {
		return c.wrong("--peer-port %q is not a port", *other)
	}
	h, cfg, d, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := mayAddStore(ctx, d, address); err != nil {
		return err
	}
	if cfg.Etcd == nil && cfg.Peers == nil {
		return h.openToPeers(ctx, c, cfg, d, *own)
	}
	ca, err := h.caOf()
	if err != nil {
		return err
	}
	keys, _, err := h.list(ctx, d)
	if err != nil {
		return err
	}
	if cfg.Etcd != nil {
		return growExternal(ctx, c, cfg, d, ca, keys, name, address, file)
	}
	adding, err := plan(ctx, d, cfg, name, address, *other, *replace)
	if err != nil {
		return err
	}
	adding.bundle.Keys = keys
	pending, err := prepareBundle(ca, adding.bundle, file)
	if err != nil {
		return err
	}
	defer pending.Discard()
	id, err := adding.do(ctx, d)
	if err != nil {
		return err
	}
	if err := pending.Commit(); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "copy %s to %s and run there: weir-store adopt %s; then start weir-store\n",
		file, name, file)
	waiting, cancel := context.WithTimeout(ctx, *wait)
	defer cancel()
	if err := promote(waiting, d, id); err != nil {
		return fmt.Errorf("%s does not have all data yet: %w; run grow again to wait longer", name,
			err)
	}
	fmt.Fprintf(c.out, "%s is a member\n", name)
	return addStore(ctx, d, address)
}

// addStore tells the hosts about another weir-store.
func addStore(ctx context.Context, d *etcd.Driver, address string) error {
	return members.ChangeIdentity(ctx, d, withStore(address))
}

func withStore(address string) func(doc *cluster.Identity) {
	return func(doc *cluster.Identity) {
		if !slices.Contains(doc.Stores, address) {
			doc.Stores = append(doc.Stores, address)
		}
	}
}

// mayAddStore returns the error with which addStore would end, before anything is changed.
func mayAddStore(ctx context.Context, d *etcd.Driver, address string) error {
	doc, err := readIdentity(ctx, d)
	if err != nil {
		return err
	}
	withStore(address)(&doc)
	if err := doc.Check(); err != nil {
		return fmt.Errorf("%s: %w: if someone else has written that list, weir cluster restore "+
			"begins another one", cluster.IdentityKey, err)
	}
	return nil
}

// growExternal makes another weir-store for the same external etcd.
func growExternal(ctx context.Context, c *call, cfg config, d *etcd.Driver, ca *identity.CA,
	keys cluster.KeyList, name, address, file string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	b := &bundle{Config: config{Name: name, Listen: ":" + port, Address: address, Etcd: cfg.Etcd},
		Keys: keys}
	pending, err := prepareBundle(ca, b, file)
	if err != nil {
		return err
	}
	if err := pending.Commit(); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "copy %s to %s and run there: weir-store adopt %s; then start weir-store\n",
		file, name, file)
	return addStore(ctx, d, address)
}

// openToPeers gives a member of one an address for others, from its next start on.
func (h home) openToPeers(ctx context.Context, c *call, cfg config, d *etcd.Driver,
	peer string) error {
	host, _, err := net.SplitHostPort(cfg.Address)
	if err != nil {
		return err
	}
	if peer == "" {
		peer = net.JoinHostPort(host, defaultPeerPort)
	}
	_, port, err := net.SplitHostPort(peer)
	if err != nil {
		return fmt.Errorf("--peer: %w", err)
	}
	list, err := d.Client().MemberList(ctx)
	if err != nil {
		return err
	}
	if len(list.Members) != 1 {
		return fmt.Errorf("the store has %d members, and this one does not know them",
			len(list.Members))
	}
	at := "https://" + peer
	if _, err := d.Client().MemberUpdate(ctx, list.Members[0].ID, []string{at}); err != nil {
		return err
	}
	cfg.Peers = &peers{Listen: "https://0.0.0.0:" + port, Advertise: at,
		Initial: map[string]string{cfg.Name: at}}
	if strings.HasPrefix(peer, "[") {
		cfg.Peers.Listen = "https://[::]:" + port
	}
	if err := h.writeConfig(cfg); err != nil {
		return err
	}
	fmt.Fprintf(c.out, "from its next start this member is reached at %s: restart weir-store, "+
		"then run grow again\n", peer)
	return nil
}

// addition is what makes another host a member.
type addition struct {
	at     string   // where others reach it
	there  uint64   // the learner that an interrupted run has added; 0: none
	remove []uint64 // members in whose place it comes
	bundle *bundle
}

// plan returns what has to be done, and changes nothing. A member that votes and does not answer is
// not the new one, which would have its number, and would have forgotten what it has acknowledged.
// It is removed if it is to be replaced. So is a learner of another address, which may be one that
// was added by mistake: etcd has one at a time.
func plan(ctx context.Context, d *etcd.Driver, cfg config, name, address, peerPort string,
	replace bool) (*addition, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	a := &addition{at: "https://" + net.JoinHostPort(host, peerPort)}
	if a.at == cfg.Peers.Advertise {
		return nil, fmt.Errorf("%s is this host: name another one", host)
	}
	list, err := d.Client().MemberList(ctx)
	if err != nil {
		return nil, err
	}
	initial := map[string]string{name: a.at}
	for _, m := range list.Members {
		switch here := slices.Contains(m.PeerURLs, a.at); {
		case here && (m.IsLearner || answers(ctx, a.at)):
			a.there = m.ID
		case !here && !m.IsLearner:
			if m.Name == name {
				return nil, fmt.Errorf("there is a store host %s already, at %s: choose another "+
					"name", name, m.PeerURLs[0])
			}
			initial[m.Name] = m.PeerURLs[0]
		case replace:
			a.remove = append(a.remove, m.ID)
		case here:
			return nil, fmt.Errorf("%s is a member already, which does not answer: start "+
				"weir-store there; if its disk is lost, run grow --replace", a.at)
		default:
			return nil, fmt.Errorf("the host at %s was added and does not have all data yet: run "+
				"grow again for it; if it was a mistake, run this command with --replace, which "+
				"removes it", m.PeerURLs[0])
		}
	}
	a.bundle = &bundle{Config: config{Name: name, Listen: ":" + port, Address: address,
		Heart: cfg.Heart, Peers: &peers{Listen: "https://0.0.0.0:" + peerPort, Advertise: a.at,
			Initial: initial, Existing: true}}}
	return a, nil
}

// do adds the member, and returns its number.
func (a *addition) do(ctx context.Context, d *etcd.Driver) (id uint64, err error) {
	for _, id := range a.remove {
		if _, err := d.Client().MemberRemove(ctx, id); err != nil {
			return 0, fmt.Errorf("remove a member: %w", err)
		}
	}
	if a.there != 0 {
		return a.there, nil
	}
	added, err := addLearner(ctx, d, a.at)
	if err != nil {
		return 0, err
	}
	return added.Member.ID, nil
}

// answers reports whether a member accepts connections of others.
func answers(ctx context.Context, at string) bool {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	conn, err := new(eyeballs.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(at, "https://"))
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// addLearner adds a learner. etcd refuses that for some seconds after another change. It also makes
// the number of a member of its address and of the present second. In the second in which the last
// one at this address was added, that number is that of a removed member, which cannot be found.
func addLearner(ctx context.Context, d *etcd.Driver, at string) (*clientv3.MemberAddResponse,
	error) {
	ctx, cancel := context.WithTimeout(ctx, 6*connectTimeout)
	defer cancel()
	for {
		added, err := d.Client().MemberAddAsLearner(ctx, []string{at})
		if !errors.Is(err, rpctypes.ErrUnhealthy) && !errors.Is(err, rpctypes.ErrMemberNotFound) {
			return added, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("a member does not run: %w; if its disk is lost, give the new "+
				"host its address, and run grow --replace", err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// prepareBundle writes the file beside its place: it is there once the member is added.
func prepareBundle(ca *identity.CA, b *bundle, file string) (*atomicfile.Pending, error) {
	credential, err := identity.Issue(ca, identity.ID{Kind: identity.Store, Name: b.Config.Name})
	if err != nil {
		return nil, err
	}
	text, err := credential.MarshalPEM()
	if err != nil {
		return nil, err
	}
	b.Credential = string(text)
	b.Config.Version = 1
	whole, err := json.MarshalIndent(b, "", "\t")
	if err != nil {
		return nil, err
	}
	return atomicfile.Prepare(file, whole)
}

// promote waits until the learner has everything, and makes it a member that votes.
func promote(ctx context.Context, d *etcd.Driver, id uint64) error {
	for {
		call, cancel := context.WithTimeout(ctx, connectTimeout)
		_, err := d.Client().MemberPromote(call, id)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrMemberNotLearner) {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// adopt makes this host a store host with a file that grow wrote elsewhere.
func adopt(_ context.Context, c *call) error {
	if err := c.parse(); err != nil {
		return err
	}
	text, err := os.ReadFile(c.args[0])
	if err != nil {
		return err
	}
	var b bundle
	err = json.Unmarshal(text, &b)
	var credential *identity.Credential
	if err == nil {
		credential, err = identity.ParseCredential([]byte(b.Credential))
	}
	if err != nil {
		return fmt.Errorf("%s: this is not the file that weir cluster grow wrote, or not all of "+
			"it: %w", c.args[0], err)
	}
	if p, err := credential.Verify(); err != nil || p.ID != (identity.ID{Kind: identity.Store,
		Name: b.Config.Name}) {
		return fmt.Errorf("%s: the credential is not that of a weir-store: %w", c.args[0], err)
	}
	h := home(c.dir)
	if err := h.make(); err != nil {
		return err
	}
	if _, err := os.Lstat(h.file(configFile)); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s exists already: this is a store host", h.file(configFile))
	}
	if err := errors.Join(atomicfile.Write(h.file(storeFile), []byte(b.Credential)),
		h.pinKeys(b.Keys)); err != nil {
		return err
	}
	return h.writeConfig(b.Config)
}
