package cluster

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// setHead takes a version that is newer than all before it.
func (d *Desired) setHead(v []byte) error {
	h, err := Decode[Head](v)
	if err != nil {
		return err
	}
	if err := h.Verify(d.trust.Admins.Keys); err != nil {
		return fmt.Errorf("version %v: %w", h.Number, err)
	}
	if h.Number.Epoch > d.Epoch() {
		return fmt.Errorf("version %v is of an epoch that the cluster has not begun: it is in "+
			"epoch %d", h.Number, d.Epoch())
	}
	known := d.trust.Head
	again := d.head != nil && equal(d.head.unsigned(), h.unsigned())
	// The host may know the number of a version that its disk has lost: it was seen just before a
	// power cut. So only a version that is there excludes another one of its number.
	have := d.head != nil && d.head.Number == known
	if c := h.Number.Compare(known); c < 0 || c == 0 && have && !again {
		return fmt.Errorf("version %v: %w: version %v; load the rules again", h.Number,
			ErrOutdated, known)
	}
	if again { // another administrator may have signed it
		d.version.good = v
		return nil
	}
	d.begin(h.Number.Epoch) // signed, if signatures are demanded
	d.trust.Head, d.head, d.version.good = h.Number, &h, v
	d.now.effects.Head, d.now.effects.Trust = &h, true
	return nil
}

// equal reports whether two documents have the same value.
func equal(a, b Document) bool {
	x, err := Encode(a)
	y, bad := Encode(b)
	return err == nil && bad == nil && bytes.Equal(x, y)
}

// setKeys takes a new list of the keys of administrators, and with it a head that one of them
// signed before the list came.
func (d *Desired) setKeys(v []byte) error {
	a, err := Decode[AdminKeys](v)
	if err != nil {
		return err
	}
	next, err := d.trust.Admins.Follow(d.trust.Cluster, &a)
	if before := d.trust.Admins; next.Count != before.Count {
		d.now.passed = before.Passed(next, &a)
		d.trust.Admins, d.now.effects.Trust = next, true
		if last := d.version.last; last != nil && !bytes.Equal(last, d.version.good) {
			d.checkSingle(HeadKey, d.setHead(last))
			d.keep(HeadKey, &d.version)
		}
	}
	return err
}

// remove ends what a removed host could do.
func (d *Desired) remove(key string, v []byte) error {
	name, ok := strings.CutPrefix(key, RemovedTree+"node/")
	if !ok {
		return nil
	}
	serials, err := removedBy(key, v, d.trust.Admins.Signers(d.now.passed))
	if err != nil {
		return err
	}
	if n := d.unknown(serials); n > 0 && !d.trust.Admins.Locked() && len(d.revoked)+n > MaxRevoked {
		return fmt.Errorf("%d certificates are revoked, and more than %d are not believed without "+
			"signatures", len(d.revoked)+n, MaxRevoked)
	}
	d.revoke(serials)
	if h := d.hosts[name]; h != nil && h.node != nil && d.revoked[h.node.Serial] {
		d.certify(name, false)
	}
	return nil
}

// unknown counts the serial numbers that are not noted yet.
func (d *Desired) unknown(all []Serial) (n int) {
	for _, s := range all {
		if !d.revoked[s] {
			n++
		}
	}
	return n
}

// revoke notes serial numbers that no certificate counts with any more.
func (d *Desired) revoke(all []Serial) {
	for _, s := range all {
		if !d.revoked[s] {
			d.revoked[s] = true
			d.now.effects.Revoked = append(d.now.effects.Revoked, s)
		}
	}
}

// certify looks at the certificate of a host again, and then at what depends on it.
func (d *Desired) certify(name string, news bool) {
	h, key := d.hosts[name], NodeTree+name
	before := h.node
	n, err := d.acceptable(name, h.cert.last)
	switch {
	case h.cert.last == nil:
		h.cert.good, h.node = nil, nil
	case err == nil:
		h.cert.good, h.node = h.cert.last, n
		d.revoke(n.Replaces)
	default:
		if news {
			d.check(key, err)
		}
		if n, err := d.acceptable(name, h.cert.good); err != nil || h.cert.good == nil {
			h.cert.good, h.node = nil, nil
		} else {
			h.node = n
		}
	}
	delete(d.waiting, name)
	if h.cert.last != nil && err != nil {
		d.waiting[name] = true
	}
	d.keep(key, &h.cert)
	if before != nil && h.node != nil && equal(before, h.node) {
		h.node = before
		return
	}
	if before == nil && h.node == nil {
		return
	}
	d.now.hosts[name] = true
	d.now.retry = d.now.retry || before != nil
	d.locate(name, false)
	for i := range h.pods {
		d.place(name, &h.pods[i], false)
	}
}

// acceptable returns the certificate of a host, or why it is refused.
func (d *Desired) acceptable(name string, v []byte) (*Node, error) {
	n, err := Decode[Node](v)
	switch {
	case err != nil:
		return nil, err
	case n.Name != name:
		return nil, fmt.Errorf("the certificate belongs to host %s", n.Name)
	case d.revoked[n.Serial]:
		return nil, fmt.Errorf("the certificate %v was removed", n.Serial)
	}
	if err := n.Verify(d.trust.CA); err != nil {
		return nil, err
	}
	if err := d.succeeds(name, &n); err != nil {
		return nil, err
	}
	for other, h := range d.hosts {
		if h.node == nil || other == name {
			continue
		}
		if r, overlaps := overlap(n.Ranges, h.node.Ranges); overlaps {
			return nil, fmt.Errorf("the range %v overlaps one of host %s", r, other)
		}
		if n.TLS == h.node.TLS || n.WireGuard == h.node.WireGuard {
			return nil, fmt.Errorf("its key belongs to host %s", other)
		}
	}
	return &n, nil
}

// succeeds returns an error unless a certificate ends the one that its host has, or that one has
// ended. An attacker in the store who has a token may have deleted that one, and joined by the
// name.
func (d *Desired) succeeds(name string, n *Node) error {
	h := d.hosts[name]
	if h == nil || h.node == nil || h.node.Serial == n.Serial || d.revoked[h.node.Serial] ||
		slices.Contains(n.Replaces, h.node.Serial) {
		return nil
	}
	return fmt.Errorf("another host of this name has the certificate %v, which was not removed: "+
		"remove host %s, and let it join again", h.node.Serial, name)
}

func overlap(a, b []netip.Prefix) (netip.Prefix, bool) {
	for _, x := range a {
		if slices.ContainsFunc(b, x.Overlaps) {
			return x, true
		}
	}
	return netip.Prefix{}, false
}

// locate looks at the endpoints of a host again.
func (d *Desired) locate(name string, news bool) {
	h, key := d.hosts[name], EndpointKey+name
	before := h.points
	if h.node == nil || before != nil && before.Serial != h.node.Serial {
		h.points, h.at.good = nil, nil
	}
	switch e, err := d.reachable(h); {
	case h.at.last == nil:
		h.points, h.at.good = nil, nil
	case h.node == nil:
	case err == nil:
		h.points, h.at.good = e, h.at.last
	case news:
		d.check(key, err)
	}
	d.keep(key, &h.at)
	if before != h.points {
		d.now.hosts[name] = true
	}
}

// reachable returns the endpoints of a host, or why they are refused.
func (d *Desired) reachable(h *host) (*Endpoints, error) {
	if h.node == nil || h.at.last == nil {
		return nil, nil
	}
	e, err := Decode[Endpoints](h.at.last)
	if err != nil {
		return nil, err
	}
	if err := e.Verify(h.node); err != nil {
		return nil, err
	}
	if p := h.points; p != nil && p.Serial == e.Serial && !bytes.Equal(h.at.last, h.at.good) &&
		e.Sequence <= p.Sequence {
		return nil, fmt.Errorf("sequence number %d: %w: %d", e.Sequence, ErrOutdated, p.Sequence)
	}
	if h.points != nil && bytes.Equal(h.at.last, h.at.good) {
		return h.points, nil
	}
	return &e, nil
}
