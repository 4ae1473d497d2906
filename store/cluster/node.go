package cluster

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AnyLabel among the label keys of a host permits it every key.
const AnyLabel = "*"

// Limits of a host's certificate and of what it announces.
const (
	maxNodeParts = 64 // roles, ranges, label keys
	maxEndpoints = 16
	maxReplaced  = 64
	// maxRemoved are the serial numbers of a removal record, a document of 280 KiB.
	maxRemoved = 8192
)

// Node is the document below NodeTree: the certificate of a host, signed by the CA. Its TLS
// certificate has the same name, serial number and key.
type Node struct {
	Versioned
	Name      string         `json:"name"`
	Serial    Serial         `json:"serial"`
	TLS       Key            `json:"tls"`
	WireGuard Key            `json:"wireguard"`
	Roles     []string       `json:"roles,omitempty"`
	Ranges    []netip.Prefix `json:"ranges,omitempty"` // of its pods
	Labels    []string       `json:"labels,omitempty"` // keys that its pods may have, or AnyLabel
	// Replaces are the serial numbers of earlier certificates of the host, oldest first: this one
	// ends them.
	Replaces  []Serial  `json:"replaces,omitempty"`
	Signature Signature `json:"signature"`
}

// Check implements Document.
func (n *Node) Check() error {
	if err := CheckName(n.Name); err != nil {
		return err
	}
	if n.Serial == (Serial{}) || n.TLS == (Key{}) || n.WireGuard == (Key{}) {
		return errors.New("a host needs a serial number and two keys")
	}
	if max(len(n.Roles), len(n.Ranges), len(n.Labels)) > maxNodeParts {
		return fmt.Errorf("more than %d roles, ranges or label keys", maxNodeParts)
	}
	if len(n.Replaces) > maxReplaced || slices.Contains(n.Replaces, n.Serial) {
		return fmt.Errorf("a certificate replaces up to %d others, not %d", maxReplaced,
			len(n.Replaces))
	}
	for _, role := range n.Roles {
		if err := CheckName(role); err != nil {
			return err
		}
	}
	for _, r := range n.Ranges {
		if !r.IsValid() || r != r.Masked() || r.Addr().Is4In6() || r.Bits() == 0 {
			return fmt.Errorf("%v is not a range", r)
		}
	}
	for _, l := range n.Labels {
		if l != AnyLabel {
			if err := checkLabelKey(l); err != nil {
				return err
			}
		}
	}
	return errors.Join(ascending("roles", n.Roles, strings.Compare), disjoint(n.Ranges),
		ascending("ranges", n.Ranges, netip.Prefix.Compare),
		ascending("labels", n.Labels, strings.Compare))
}

// Host returns the host as far as scopes concern it.
func (n *Node) Host() Host { return Host{Name: n.Name, Roles: n.Roles} }

// Sign puts the lists in order and signs the certificate with the CA's private key.
func (n *Node) Sign(ca []byte) (err error) {
	slices.Sort(n.Roles)
	slices.Sort(n.Labels)
	slices.SortFunc(n.Ranges, netip.Prefix.Compare)
	n.Version = layout
	n.Signature, err = sign(ca, "node", n.Name, n.content())
	return err
}

func (n *Node) content() Node {
	c := *n
	c.Signature = nil
	return c
}

// Verify returns an error unless the CA signed the certificate. ca are its public keys.
func (n *Node) Verify(ca []Key) error {
	return verify(ca, "node", n.Name, n.content(), n.Signature)
}

// Replace has the certificate revoke an earlier one of the host, and what that revoked. Of more
// than there is space for, those that were revoked first are forgotten.
func (n *Node) Replace(earlier *Node) {
	for _, s := range earlier.Serials() {
		if !slices.Contains(n.Replaces, s) {
			n.Replaces = append(n.Replaces, s)
		}
	}
	n.Replaces = n.Replaces[max(0, len(n.Replaces)-maxReplaced):]
}

// Serials returns the serial numbers to revoke with the certificate: those that it replaces, and
// its own.
func (n *Node) Serials() []Serial { return append(slices.Clone(n.Replaces), n.Serial) }

// MayLabel reports whether the host's pods may have labels with a key.
func (n *Node) MayLabel(key string) bool {
	return slices.Contains(n.Labels, key) || slices.Contains(n.Labels, AnyLabel)
}

// Owns reports whether an address lies in the host's ranges.
func (n *Node) Owns(a netip.Addr) bool {
	return slices.ContainsFunc(n.Ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// Endpoints is the document below EndpointKey: where a host is reached, signed by the host.
type Endpoints struct {
	Versioned
	Serial    Serial           `json:"serial"`          // of its certificate
	Sequence  uint64           `json:"sequence"`        // larger with each change; from 1
	Addrs     []netip.AddrPort `json:"addrs,omitempty"` // of the tunnel, best first
	Signature Signature        `json:"signature"`
}

// Check implements Document.
func (e *Endpoints) Check() error {
	if len(e.Addrs) > maxEndpoints {
		return fmt.Errorf("%d endpoints, at most %d", len(e.Addrs), maxEndpoints)
	}
	if e.Sequence == 0 {
		return errors.New("sequence number 0: the first is 1")
	}
	for _, a := range e.Addrs {
		if !a.IsValid() || a.Port() == 0 || a.Addr().Is4In6() || a.Addr().Zone() != "" ||
			a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().IsLoopback() {
			return fmt.Errorf("%v is not an endpoint that others could reach", a)
		}
	}
	return nil
}

// Sign signs the endpoints of a host with the private key of its TLS certificate.
func (e *Endpoints) Sign(name string, key []byte) (err error) {
	e.Version = layout
	content := *e
	content.Signature = nil
	e.Signature, err = sign(key, "endpoints", name, content)
	return err
}

// Verify returns an error unless the host with this certificate signed the endpoints.
func (e *Endpoints) Verify(n *Node) error {
	if e.Serial != n.Serial {
		return fmt.Errorf("the endpoints name certificate %v, the host has %v: %w", e.Serial,
			n.Serial, ErrSignature)
	}
	content := *e
	content.Signature = nil
	return verify([]Key{n.TLS}, "endpoints", n.Name, content, e.Signature)
}

// RemovalRecord is the document below RemovedTree: what was removed on purpose.
type RemovalRecord struct {
	Versioned
	// Serials are those of all certificates that hosts of the name had when they were removed. They
	// stay when another host of the name joins. None for a table.
	Serials []Serial `json:"serials,omitempty"`
	// Signature is one of an admin's, for a cluster with keys of admins.
	Signature Signature `json:"signature,omitempty"`
	// CA is the CA's signature, which frees the name of a host and its ranges (Frees).
	CA Signature `json:"ca,omitempty"`
}

// Check implements Document.
func (r *RemovalRecord) Check() error {
	return ascending("serials", r.Serials, Serial.Compare)
}

// Add adds serial numbers. If there is no space for all, earlier ones give way. Without the rules
// lock an attacker in the store may have written them, and a removal has to be possible.
func (r *RemovalRecord) Add(revoked []Serial) {
	r.Serials = r.Serials[:min(len(r.Serials), max(0, maxRemoved-len(revoked)))]
	r.Serials = append(slices.Clone(r.Serials), revoked...)
	slices.SortFunc(r.Serials, Serial.Compare)
	r.Serials = slices.Compact(r.Serials)
}

// HasSpace reports whether the removal of one more host fits into the removal record.
func (r *RemovalRecord) HasSpace() bool { return len(r.Serials)+maxReplaced < maxRemoved }

// Sign signs a removal record below RemovedTree with an admin's private key.
func (r *RemovalRecord) Sign(key string, admin []byte) (err error) {
	r.Version = layout
	r.Signature, err = sign(admin, "removed", key, r.content())
	return err
}

// SignCA signs it with the CA's private key.
func (r *RemovalRecord) SignCA(key string, ca []byte) (err error) {
	r.Version = layout
	r.CA, err = sign(ca, "freed", key, r.content())
	return err
}

func (r *RemovalRecord) content() RemovalRecord {
	c := *r
	c.Signature, c.CA = nil, nil
	return c
}

// Frees reports whether the name of a host that had a certificate is free, and its ranges are. The
// CA has signed that: who can write into the store, without the rules lock also what ends a
// certificate, must not get the name by that. ca are the CA's public keys.
func (r *RemovalRecord) Frees(key string, had Serial, ca []Key) bool {
	return slices.Contains(r.Serials, had) && verify(ca, "freed", key, r.content(), r.CA) == nil
}

// Verify returns an error unless one of the admins signed the removal record. Without admins every
// removal record is good.
func (r *RemovalRecord) Verify(key string, admins []Key) error {
	if len(admins) == 0 {
		return nil
	}
	return verify(admins, "removed", key, r.content(), r.Signature)
}
