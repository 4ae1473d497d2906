package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// recordVersion is that of the record's layout. A record of a later one is not touched.
const recordVersion = 1

// record is services.json: what a new agent brings back, and what down has to remove.
type record struct {
	Version  int       `json:"version"`
	Services []Spec    `json:"services"`
	Held     addresses `json:"addresses"`
}

// addresses are those that the loopback has, or may have, for services: they stand here before it
// gets them, and until it has lost them.
type addresses []netip.Addr

// Spec is a service as it was added.
type Spec struct {
	Name  string         `json:"name"`
	Proto packet.Proto   `json:"proto"` // TCP or UDP
	At    netip.AddrPort `json:"at"`
	Table string         `json:"table"` // KEY=VALUE
	Port  uint16         `json:"port"`  // of the pods
}

// damaged is the error for a record whose text makes no sense.
type damaged struct{ error }

func isDamaged(err error) bool {
	var d damaged
	return errors.As(err, &d)
}

// Hint returns what to do.
func (d damaged) Hint() string {
	return "repair it, or add its services again: the first weir service add sets it aside"
}

// readRecord reads the record; there may be none.
func readRecord(file string) (r record, err error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return record{}, damaged{fmt.Errorf("%s is not a record of services: %w", file, err)}
	}
	if r.Version > recordVersion {
		return record{}, fmt.Errorf("%s is of version %d, which this Weir does not know: use the "+
			"one that wrote it", file, r.Version)
	}
	if err := r.check(); err != nil {
		return record{}, damaged{fmt.Errorf("%s is not a record of services: %w", file, err)}
	}
	return r, nil
}

// check refuses services that make no sense, and those that cannot be there together: the engine
// would set none of them.
func (r *record) check() error {
	names, ports := map[string]int{}, map[forward.ServiceKey]int{}
	for i := range r.Services {
		s := &r.Services[i]
		if err := s.check(); err != nil {
			return fmt.Errorf("services[%d]: %w", i, err)
		}
		if o, twice := names[s.Name]; twice {
			return fmt.Errorf("services[%d]: service %s: services[%d] has that name, too", i,
				s.Name, o)
		}
		key := forward.ServiceKey{Proto: s.Proto, At: s.At}
		if o, twice := ports[key]; twice {
			return fmt.Errorf("services[%d]: service %s: services[%d], %s, has %s port %d of %s, "+
				"too", i, s.Name, o, r.Services[o].Name, s.Proto, s.At.Port(), s.At.Addr())
		}
		names[s.Name], ports[key] = i, i
	}
	return nil
}

// write replaces the record. One without content is removed.
func (r *record) write(file string) error {
	if len(r.Services)+len(r.Held) == 0 {
		return atomicfile.Remove(file)
	}
	r.Version = recordVersion
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return atomicfile.Write(file, append(text, '\n'))
}

// virtual are the addresses of the services.
func (r *record) virtual() (all []netip.Addr) {
	for _, s := range r.Services {
		if !slices.Contains(all, s.At.Addr()) {
			all = append(all, s.At.Addr())
		}
	}
	return all
}

// clone returns a copy.
func (r *record) clone() record {
	return record{Services: slices.Clone(r.Services), Held: slices.Clone(r.Held)}
}
