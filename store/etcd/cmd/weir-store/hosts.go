package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/weirnet/weir/store"
	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/etcd"
	"github.com/weirnet/weir/store/identity"
	"github.com/weirnet/weir/store/members"
)

// invite prints a token with the address to join at.
func invite(ctx context.Context, c *call) error {
	var roles, labels words
	c.flags.Var(&roles, "role", "role that the host gets; may be repeated")
	c.flags.Var(&labels, "label", "key of labels that the host may give its pods, * for all; may "+
		"be repeated")
	uses := c.flags.Int("uses", 1, "how many hosts may join with the token")
	valid := c.flags.Duration("for", time.Hour, "for how long the token is valid")
	if err := c.parse(); err != nil {
		return err
	}
	h, cfg, d, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	ca, err := h.caOf()
	if err != nil {
		return err
	}
	keys, err := h.keys(ctx, d)
	if err != nil {
		return err
	}
	token, err := members.Invite(ctx, d, ca, members.Invitation{Roles: roles,
		Labels: labels, Uses: *uses, Valid: *valid, Keys: keys})
	if err != nil {
		return err
	}
	fmt.Fprintf(c.out, "%s@%s\n", token, cfg.Address)
	return nil
}

// signing is the option of a command whose document an administrator may have to sign.
func (c *call) signing() *string {
	return c.flags.String("sign", "", "file with the credential of an administrator that signs "+
		"it, for a cluster that demands that")
}

func signer(file string) (ed25519.PrivateKey, error) {
	if file == "" {
		return nil, nil
	}
	own, err := identity.ReadCredential(file)
	if err != nil {
		return nil, err
	}
	return own.Key, nil
}

// remove removes a host.
func remove(ctx context.Context, c *call) error {
	sign := c.signing()
	if err := c.parse(); err != nil {
		return err
	}
	var by members.Signing
	var err error
	if by.Key, err = signer(*sign); err != nil {
		return err
	}
	h, _, d, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if by.Key == nil {
		if err := h.mayRemove(ctx, d); err != nil {
			return err
		}
	}
	if by, err = h.known(ctx, d, by); err != nil {
		return err
	}
	switch ca, err := h.ca(); {
	case err == nil:
		by.CAKey = ca.Key()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := members.Remove(ctx, d, c.args[0], by); err != nil {
		return err
	}
	if by.CAKey == nil {
		fmt.Fprintf(c.out, "removed; the name %s and its ranges stay reserved until this command "+
			"runs on the store host with %s as well\n", c.args[0], caFile)
	}
	return nil
}

// mayRemove returns an error where hosts would hold a removal that no one has signed: a later
// signature is too late, since there is no certificate to sign any more.
func (h home) mayRemove(ctx context.Context, s store.Store) error {
	list, _, err := h.list(ctx, s)
	if list.Locked() {
		return errors.New("hosts accept only signed removals: give --sign FILE with the " +
			"credential of an administrator")
	}
	if errors.Is(err, cluster.ErrDocument) { // hosts take no keys from it
		return nil
	}
	return err
}

// issue writes a credential and puts it in force.
func issue(ctx context.Context, c *call) error {
	if err := c.parse(); err != nil {
		return err
	}
	id, err := identity.ParseID(c.args[0])
	if err != nil {
		return err
	}
	if _, err := os.Lstat(c.args[1]); err == nil {
		return fmt.Errorf("%s exists already: name another file", c.args[1])
	}
	h, _, d, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	ca, err := h.caOf()
	if err != nil {
		return err
	}
	credential, err := issueTo(ca, c.args[1], id)
	if err != nil {
		return err
	}
	p, err := credential.Peer()
	if err != nil {
		return err
	}
	err = changeIssued(ctx, d, func(doc *cluster.Issued) {
		doc.Certificates = append(doc.Certificates, cluster.IssuedCertificate{ID: id.String(),
			Serial: cluster.Serial(p.Serial)})
	})
	if err != nil {
		err = errors.Join(err, os.Remove(c.args[1]))
	}
	return err
}

// revoke takes every credential of an identity out of force.
func revoke(ctx context.Context, c *call) error {
	if err := c.parse(); err != nil {
		return err
	}
	_, _, d, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	revoked := 0
	err = changeIssued(ctx, d, func(doc *cluster.Issued) {
		revoked = doc.Revoke(func(i cluster.IssuedCertificate) bool { return i.ID == c.args[0] })
	})
	if err == nil && revoked == 0 {
		err = fmt.Errorf("%s has no credential; a host is removed with weir node remove", c.args[0])
	}
	return err
}

// changeIssued changes the list of the certificates in force. What is not a list counts as none: an
// attacker in the store has written it, and no administrator can connect until there is a new
// certificate.
func changeIssued(ctx context.Context, d *etcd.Driver,
	change func(*cluster.Issued)) error {
	for {
		got, err := d.Read(ctx, cluster.IssuedKey, 0)
		if err != nil {
			return err
		}
		var doc cluster.Issued
		at := store.Compare{Key: cluster.IssuedKey}
		for _, e := range got.Entries {
			at.Revision = e.Revision
			doc, err = cluster.Decode[cluster.Issued](e.Value)
			if errors.Is(err, cluster.ErrDocument) {
				doc = cluster.Issued{}
			} else if err != nil {
				return err
			}
		}
		change(&doc)
		slices.SortFunc(doc.Certificates, cluster.IssuedCertificate.Compare)
		value, err := cluster.Encode(&doc)
		if err != nil {
			return err
		}
		_, err = d.Commit(ctx, store.Txn{Compare: []store.Compare{at},
			Put: []store.Entry{{Key: cluster.IssuedKey, Value: value}}})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
