package peers

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"time"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
)

// recordVersion is that of the record's layout. A record of a later one is not touched.
const recordVersion = 1

// recordFile is peers.json: what a new agent brings back, and what down has to remove. It has
// pre-shared keys and is for its owner alone.
type recordFile struct {
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

// readRecord reads the record; there may be none. After an error the ranges that can be found in
// the file are returned as held.
func readRecord(file string) (r recordFile, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err = json.Unmarshal(text, &r); err != nil {
		err = fmt.Errorf("%s is not a record of peers: %w: %w", file, errDamaged, err)
	} else if r.Version > recordVersion {
		err = fmt.Errorf("%s is of version %d, which this Weir does not know: use the one that "+
			"wrote it", file, r.Version)
	} else if bad := r.check(); bad != nil {
		err = fmt.Errorf("%s is not a record of peers: %w: %w", file, errDamaged, bad)
	}
	if err != nil {
		return recordFile{Held: []heldRecord{{Name: lostName, Pods: rangesIn(text)}}}, err
	}
	return r, nil
}

// check refuses what no Weir has written.
func (r recordFile) check() error {
	names := map[string]bool{}
	for _, p := range r.Peers {
		if p.Name == "" || names[p.Name] || p.Key.IsZero() ||
			!slices.EqualFunc(p.Pods, p.Pods, validRange) {
			return fmt.Errorf("the entry of peer %q is not valid", p.Name)
		}
		names[p.Name] = true
	}
	for _, h := range r.Held {
		if !slices.EqualFunc(h.Pods, h.Pods, validRange) {
			return fmt.Errorf("the held ranges of %q are not valid", h.Name)
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
func (r recordFile) prepare(file string) (*atomicfile.Pending, error) {
	r.Version = recordVersion
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return nil, err
	}
	return atomicfile.Prepare(file, append(text, '\n'))
}

func (r recordFile) write(file string) error {
	pending, err := r.prepare(file)
	if err != nil {
		return err
	}
	return pending.Commit()
}
