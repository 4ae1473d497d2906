package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/eyeballs"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/tty"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/client"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/disk"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/wire"
)

const (
	storePort = "7477"           // of weir-store, unless the token has another
	joinTime  = 30 * time.Second // for the answer

	maxInvitation = 4096 // bytes

	// joinSpace is what an answer takes on the disk at most. It is taken before the host asks: the
	// token is used when the answer comes.
	joinSpace = wire.MaxFrame
)

func joinCommand(c *call) action {
	name := c.String("name", "",
		"the `NAME` of this host in the cluster (default: from its host name)")
	c.takes(1, 1)
	return func() error {
		invitation := c.Arg(0)
		if invitation == "-" {
			if tty.IsTerminal(c.in) {
				fmt.Fprint(c.stderr, "TOKEN@HOST: ")
			}
			line, err := c.readLine(maxInvitation)
			if err != nil && !errors.Is(err, io.EOF) {
				return c.failed(err)
			}
			invitation = strings.TrimSpace(line)
		}
		text, address, ok := strings.Cut(invitation, "@")
		if !ok || address == "" { // a part of it may be secret
			return c.wrong("this is not TOKEN@HOST, as weir cluster invite prints it")
		}
		token, err := identity.ParseToken(text)
		if err != nil {
			return c.failed(err)
		}
		j := client.Join{Token: token, Address: withPort(address, storePort), Name: *name,
			Dial: new(eyeballs.Dialer).DialContext}
		m, err := c.join(j)
		if err != nil {
			return c.failed(unreached(err))
		}
		fmt.Fprintf(c.out, "%s is a host of the cluster %s\n", m.Name, m.Cluster)
		switch err := c.client().Post(c.ctx, "/v1/restart", nil, &api.Done{}); {
		case errors.Is(err, api.ErrNoNode):
			fmt.Fprintln(c.stderr, "weir: the node does not run; weir up follows the store")
		case err != nil:
			return c.failed(err)
		}
		return nil
	}
}

// unreached adds a hint to the error of a connection that could not be made.
func unreached(err error) error {
	var network *net.OpError
	if !errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return advice{err, "check the address, weir-store there (systemctl status weir-store), and " +
		"rules on the way to its port"}
}

// join joins, and writes what the host got. A host that is a member already proves that with its
// key and gets a new certificate for a new key: the one before may be known to others.
func (c *call) join(j client.Join) (*disk.Member, error) {
	dir := c.paths().Store()
	ctx, cancel := context.WithTimeout(c.ctx, joinTime)
	defer cancel()
	held, err := disk.Hold(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	var had ed25519.PrivateKey
	before, err := disk.ReadMember(dir)
	switch {
	case err == nil:
		if j.Name == "" {
			j.Name = before.Name
		}
		old, err := identity.ParseCredential([]byte(before.Credential))
		if err != nil {
			return nil, err
		}
		had = old.Key
	case errors.Is(err, disk.ErrExposed): // it says what to do
		return nil, err
	case !errors.Is(err, fs.ErrNotExist):
		return nil, advice{err, "remove it and join again: rm " +
			filepath.Join(dir, disk.MemberFile) + "; if the name is taken then: weir node remove"}
	}
	if j.Name == "" {
		if j.Name, err = hostName(); err != nil {
			return nil, err
		}
	}
	if err := cluster.CheckName(j.Name); err != nil {
		return nil, err
	}
	reserved, err := disk.Reserve(dir, joinSpace)
	if err != nil {
		return nil, advice{err, "free space there and join again; the token stays valid"}
	}
	defer reserved.Close()
	key, again, err := joiningKey(dir, had)
	if err != nil {
		return nil, err
	}
	j.Key = key
	if j.WireGuardKey, err = c.tunnelKey(); err != nil {
		return nil, err
	}
	joined, err := rejoin(ctx, j, had, again)
	if err != nil {
		return nil, err
	}
	if err := reserved.Close(); err != nil {
		return nil, err
	}
	m, err := memberOf(j, joined, dir)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EIO) {
		err = advice{err, "the store knows the host, and the token is used: mend the disk and " +
			"join again with another token"}
	}
	return m, err
}

// rejoin joins with the key had as the old one; nil: the host was not a member. A join
// that was cut off may have put the new key in force: so one that comes again tries that, too.
func rejoin(ctx context.Context, j client.Join, had ed25519.PrivateKey, again bool) (
	*client.Joined, error) {
	if j.Old = had; had == nil && again {
		j.Old = j.Key
	}
	joined, err := j.Do(ctx)
	if err == nil || had == nil || !again || !errors.Is(err, store.ErrPermission) {
		return joined, err
	}
	j.Old = j.Key
	if joined, second := j.Do(ctx); second == nil {
		return joined, nil
	}
	return nil, err
}

// memberOf writes what a host got.
func memberOf(j client.Join, joined *client.Joined, dir string) (*disk.Member, error) {
	file, err := joined.Credential.MarshalPEM()
	if err != nil {
		return nil, err
	}
	m := &disk.Member{Name: j.Name, Epoch: joined.Epoch, Stores: joined.Stores, Node: joined.Node,
		Credential: string(file)}
	if err := m.Cluster.UnmarshalText([]byte(joined.Cluster)); err != nil {
		return nil, err
	}
	if m.Admins, err = invitedKeys(j.Token, m.Cluster, joined.Keys); err != nil {
		return nil, err
	}
	if m.Admins.Locked() {
		m.Epoch = 1 // a signed version says which one it is
	}
	for serial := range slices.Chunk(joined.Revoked, len(cluster.Serial{})) {
		if len(serial) == len(cluster.Serial{}) {
			m.Revoked = append(m.Revoked, cluster.Serial(serial))
		}
	}
	if err := m.Write(dir); err != nil {
		return nil, err
	}
	return m, atomicfile.Remove(filepath.Join(dir, joiningFile))
}

// invitedKeys returns the keys of administrators that the host demands from now on: those that the
// token names. The store alone cannot bring or withhold them.
func invitedKeys(t identity.Token, of cluster.Serial, keys []byte) (l cluster.KeyList, err error) {
	if cluster.Digest(t.Keys) == (cluster.Digest{}) {
		return l, nil
	}
	a, err := cluster.Decode[cluster.AdminKeys](keys)
	if err != nil {
		return l, fmt.Errorf("the keys of administrators: %w", err)
	}
	for _, l := range a.Lists {
		if d, err := l.Digest(of); err != nil || d == cluster.Digest(t.Keys) {
			return l, err
		}
	}
	return l, errors.New("the keys of administrators are not those of the invitation: weir " +
		"cluster invite prints another one")
}

// joiningFile has the key of a host until it has its certificate. A host whose join was cut off
// may be a member by it already: then the key proves that the name is its own.
const joiningFile = "joining"

// joiningKey returns the key for a new certificate of a host, which has had another one or none.
// again says that an earlier join began with it.
func joiningKey(dir string, had ed25519.PrivateKey) (key ed25519.PrivateKey, again bool,
	err error) {
	file := filepath.Join(dir, joiningFile)
	seed, err := os.ReadFile(file)
	if err == nil && len(seed) == ed25519.SeedSize {
		// Otherwise that join was cut off behind its end.
		if key = ed25519.NewKeyFromSeed(seed); !key.Equal(had) {
			return key, true, nil
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, false, err
	}
	if key, err = identity.NewKey(); err != nil {
		return nil, false, err
	}
	return key, false, atomicfile.Write(file, key.Seed())
}

// tunnelKey returns the public key of the node's tunnel: from the node or, if it does not run, from
// its file.
func (c *call) tunnelKey() (key [32]byte, err error) {
	var k api.PeerKey
	err = c.client().Post(c.ctx, "/v1/peers/key", nil, &k)
	if err == nil {
		parsed, err := overlay.ParseKey(k.Key)
		return [32]byte(parsed), err
	}
	if !errors.Is(err, api.ErrNoNode) {
		return key, err
	}
	n, err := c.nodeConfig("", nil)
	if err != nil {
		return key, err
	}
	file := n.Settings.Overlay.KeyFile
	if file == "" {
		file = c.paths().Key()
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return key, err
	}
	private, err := overlay.LoadKey(file)
	if err != nil {
		return key, err
	}
	return [32]byte(private.Public()), nil
}

// hostName is the first part of the host's name.
func hostName() (string, error) {
	name, err := os.Hostname()
	name, _, _ = strings.Cut(strings.ToLower(name), ".")
	return name, err
}

// withPort adds a port to an address that has none.
func withPort(address, port string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), port)
}
