package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/overlay"
)

// peersRecord is peers.json: what a new agent brings back, and what down has to remove. It has pre-shared keys and is for its owner alone.
type peersRecord struct {
	Interface string       `json:"interface"`
	Peers     []peerRecord `json:"peers"`
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

func recordOf(p overlay.Peer) peerRecord {
	r := peerRecord{Name: p.Name, Key: p.Key, Endpoints: p.Endpoints, Pods: p.Pods, Keepalive: p.Keepalive, Plain: p.Plain}
	if !p.Preshared.IsZero() {
		r.Preshared = &p.Preshared
	}
	return r
}

func (r peerRecord) peer() overlay.Peer {
	p := overlay.Peer{Name: r.Name, Key: r.Key, Endpoints: r.Endpoints, Pods: r.Pods, Keepalive: r.Keepalive, Plain: r.Plain}
	if r.Preshared != nil {
		p.Preshared = *r.Preshared
	}
	return p
}

// readPeers reads the record; there may be none.
func readPeers(file string) (r peersRecord, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%s is no record of peers: %w; move it away and add the peers anew", file, err)
	}
	return r, nil
}

func (r peersRecord) write(file string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(text, '\n'))
}

// removePeers takes away what peers have left: routes, the socket for wg(8), the record, and the key unless the settings name another file. The
// interface went with the agent. With keep, record and key stay.
func removePeers(p Paths, keep bool) error {
	r, err := readPeers(p.Peers())
	errs := []error{err}
	for _, one := range r.Peers {
		errs = append(errs, stopGaps(one.Pods, false))
		if one.Plain {
			errs = append(errs, removePlain(one.Pods))
		}
	}
	if r.Interface != "" {
		errs = append(errs, removeFile(filepath.Join(p.WG(), r.Interface+".sock")), p.removeEmpty(p.WG()))
	}
	if !keep {
		errs = append(errs, removeFile(p.Peers()), removeFile(p.Key()))
	}
	return errors.Join(errs...)
}
