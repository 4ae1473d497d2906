package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
)

// peersVersion is that of the record's layout. A record of a later one is not touched.
const peersVersion = 1

// peersRecord is peers.json: what a new agent brings back, and what down has to remove. It has
// pre-shared keys and is for its owner alone.
type peersRecord struct {
	Version   int          `json:"version"`
	Interface string       `json:"interface"`
	Peers     []peerRecord `json:"peers"`
	Held      []heldRecord `json:"held,omitempty"`
}

type peerRecord struct {
	Name      string         `json:"name"`
	Key       overlay.Key    `json:"key"`
	Preshared *overlay.Key   `json:"preshared,omitempty"`
	Endpoints []string       `json:"endpoints,omitempty"`
	Pods      []netip.Prefix `json:"pods"`
	Keepalive time.Duration  `json:"keepalive_ns,omitempty"`
	Plain     bool           `json:"plain,omitempty"`
}

// heldRecord are ranges that an encrypted peer had: they stay unreachable until they are released.
type heldRecord struct {
	Name string         `json:"name"`
	Pods []netip.Prefix `json:"pods"`
}

func recordOf(p overlay.Peer) peerRecord {
	r := peerRecord{Name: p.Name, Key: p.Key, Endpoints: p.Endpoints, Pods: p.Pods,
		Keepalive: p.Keepalive, Plain: p.Unencrypted}
	if !p.Preshared.IsZero() {
		r.Preshared = &p.Preshared
	}
	return r
}

func (r peerRecord) peer() overlay.Peer {
	p := overlay.Peer{Name: r.Name, Key: r.Key, Endpoints: r.Endpoints, Pods: r.Pods,
		Keepalive: r.Keepalive, Unencrypted: r.Plain}
	if r.Preshared != nil {
		p.Preshared = *r.Preshared
	}
	return p
}

// errDamaged marks a record that makes no sense, as against one that cannot be read now or is of a
// later version.
var errDamaged = errors.New("damaged")

// readPeers reads the record; there may be none. After an error the ranges that can be found in the
// file are returned as held.
func readPeers(file string) (r peersRecord, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err = json.Unmarshal(text, &r); err != nil {
		err = fmt.Errorf("%s is not a record of peers: %w: %w", file, errDamaged, err)
	} else if r.Version > peersVersion {
		err = fmt.Errorf("%s is of version %d, which this Weir does not know: use the one that "+
			"wrote it", file, r.Version)
	} else if bad := r.check(); bad != nil {
		err = fmt.Errorf("%s is not a record of peers: %w: %w", file, errDamaged, bad)
	}
	if err != nil {
		return peersRecord{Held: []heldRecord{{Name: lostName, Pods: rangesIn(text)}}}, err
	}
	return r, nil
}

// check refuses what no Weir has written.
func (r peersRecord) check() error {
	names := map[string]bool{}
	for _, p := range r.Peers {
		if p.Name == "" || names[p.Name] || p.Key.IsZero() ||
			!slices.EqualFunc(p.Pods, p.Pods, validRange) {
			return fmt.Errorf("peer %q makes no sense", p.Name)
		}
		names[p.Name] = true
	}
	for _, h := range r.Held {
		if !slices.EqualFunc(h.Pods, h.Pods, validRange) {
			return fmt.Errorf("held ranges of %q make no sense", h.Name)
		}
	}
	return nil
}

func validRange(r, _ netip.Prefix) bool { return r.IsValid() && r == r.Masked() }

// lostName is the name under which ranges from a damaged record are held.
const lostName = "damaged-record"

var quotedRange = regexp.MustCompile(`"([0-9a-fA-F.:]+/[0-9]{1,3})"`)

// rangesIn finds ranges in a damaged record: packets for them must not leave in the clear while
// their owner is not known.
func rangesIn(text []byte) (all []netip.Prefix) {
	for _, m := range quotedRange.FindAllSubmatch(text, -1) {
		r, err := netip.ParsePrefix(string(m[1]))
		if err == nil && !slices.Contains(all, r.Masked()) {
			all = append(all, r.Masked())
		}
	}
	return all
}

// prepare writes the record beside its file. All that can fail for want of space is done when it
// returns.
func (r peersRecord) prepare(file string) (*atomicfile.Pending, error) {
	r.Version = peersVersion
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return nil, err
	}
	return atomicfile.Prepare(file, append(text, '\n'))
}

func (r peersRecord) write(file string) error {
	pending, err := r.prepare(file)
	if err != nil {
		return err
	}
	return pending.Commit()
}

// removePeers takes away what peers have left: routes, the socket for wg(8), the record, and the
// key unless the settings name another file. The interface went with the agent. With keep, record
// and key stay.
func removePeers(p Paths, keep bool) error {
	_, err := os.Stat(p.Peers())
	if errors.Is(err, fs.ErrNotExist) { // routes are of another node, if there are any
		if keep {
			return nil
		}
		return removeFile(p.Key())
	}
	r, err := readPeers(p.Peers())
	if err != nil && !errors.Is(err, errDamaged) {
		return err
	}
	var errs []error
	for _, one := range r.Peers {
		if one.Plain {
			errs = append(errs, removePlain(one.Pods))
		}
	}
	errs = append(errs, deleteBlackholesOf(func(netip.Prefix) bool { return true }))
	if r.Interface != "" {
		errs = append(errs, removeFile(filepath.Join(p.WG(), r.Interface+".sock")),
			p.removeEmpty(p.WG()))
	}
	if keep {
		return errors.Join(errs...)
	}
	aside, err := filepath.Glob(p.Peers() + ".*")
	errs = append(errs, err)
	for _, file := range append(aside, p.Peers(), p.Key()) {
		errs = append(errs, removeFile(file))
	}
	return errors.Join(errs...)
}
