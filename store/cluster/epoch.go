package cluster

import "fmt"

// maxEpochs is how many epochs after the last one that is known another one may be. Each restore
// begins one, so a host that was away for years is not as far behind. Without a bound, one write of
// the last epoch that there is would make every later cluster an old one for ever: with it, that
// takes 2^48 writes.
const maxEpochs = 1 << 16

// CheckEpoch returns an error for an epoch that is too far after a known one to be believed.
func CheckEpoch(known, next uint64) error {
	if next > known && next-known > maxEpochs {
		return fmt.Errorf("epoch %d is too far after epoch %d: at most %d are skipped", next,
			known, maxEpochs)
	}
	return nil
}

// Epoch returns the epoch that w/cluster names, which Trust may not have yet: with keys of
// administrators it has an epoch when there is a signed version of it.
func (d *Desired) Epoch() uint64 { return max(d.named, d.trust.Epoch) }

// setIdentity takes a later epoch.
func (d *Desired) setIdentity(v []byte) error {
	d.implausible = 0
	i, err := Decode[Identity](v)
	switch {
	case err != nil:
		return err
	case i.ID != d.trust.Cluster:
		return fmt.Errorf("it is the cluster %v, this host joined %v", i.ID, d.trust.Cluster)
	case i.Epoch < d.trust.Epoch:
		return fmt.Errorf("epoch %d: %w: epoch %d", i.Epoch, ErrOutdated, d.trust.Epoch)
	}
	if err := CheckEpoch(d.trust.Epoch, i.Epoch); err != nil {
		d.implausible = i.Epoch
		return err
	}
	d.stores, d.named = i.Stores, i.Epoch
	if !d.trust.Admins.Locked() {
		d.begin(i.Epoch)
	}
	return nil
}

// begin has the host believe an epoch.
func (d *Desired) begin(epoch uint64) {
	if epoch > d.trust.Epoch {
		d.trust.Epoch, d.now.effects.Trust = epoch, true
	}
}

// ImplausibleEpoch returns the epoch that w/cluster names and that is too far away to be believed,
// or 0.
func (d *Desired) ImplausibleEpoch() uint64 { return d.implausible }

// AcceptEpoch has the host believe an epoch, also an earlier one than its own: an administrator
// says that the store of that epoch is the right one. What is in force stays until that store has
// something else. It reports whether it did: signatures say which store is the right one where they
// are demanded.
func (d *Desired) AcceptEpoch(epoch uint64) bool {
	if epoch == 0 || d.trust.Admins.Locked() {
		return false
	}
	d.trust.Epoch, d.named, d.implausible = epoch, epoch, 0
	if d.trust.Head.Epoch > epoch {
		d.trust.Head = Number{}
	}
	return true
}
