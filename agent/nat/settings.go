package nat

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/packet"
)

// Settings are the lists of translations in the settings.
type Settings struct {
	Forwards    []Forward
	Masquerades []forward.SourceNAT
	Binats      []Binat
}

// Apply reads the elements of [[forward]], [[masquerade]] and [[binat]]. An element is named by its
// number, from 1.
func (s *Settings) Apply(forwards []ForwardFile, masquerades []MasqueradeFile,
	binats []BinatFile) error {
	if err := s.applyForwards(forwards); err != nil {
		return err
	}
	if err := s.applyMasquerades(masquerades); err != nil {
		return err
	}
	return s.applyBinats(binats)
}

func (s *Settings) applyForwards(all []ForwardFile) error {
	total := 0
	for i, f := range all {
		one, err := f.forward()
		if err != nil {
			return fmt.Errorf("[[forward]] %d: %w", i+1, err)
		}
		for j, o := range s.Forwards {
			if port, both := one.meets(o); both {
				return fmt.Errorf("[[forward]] %d: listen: %s port %d of %s is forwarded by "+
					"[[forward]] %d already", i+1, one.Proto, port, one.address(), j+1)
			}
		}
		if total += one.Count; total > maxForwarded {
			return fmt.Errorf("[[forward]] %d: %d ports are too many; at most %d in all", i+1,
				total, maxForwarded)
		}
		s.Forwards = append(s.Forwards, one)
	}
	return nil
}

// Check refuses what the other settings contradict. These are the ranges of the host's own pods,
// which publish ports and have a masquerade of their own, and the port of the tunnel, 0 without
// one.
func (s *Settings) Check(pods []netip.Prefix, tunnel uint16) error {
	for i, f := range s.Forwards {
		for _, r := range pods {
			if r.Contains(f.To.Addr()) {
				return fmt.Errorf("[[forward]] %d: to: %s is in pods.ranges; publish the port "+
					"with the pod: weir pod attach --publish", i+1, f.To.Addr())
			}
		}
		if f.Has(packet.ProtoUDP, tunnel) {
			return fmt.Errorf("[[forward]] %d: listen: udp port %d is that of the tunnel to "+
				"other nodes; forward another one, or set overlay.port", i+1, tunnel)
		}
	}
	for i, m := range s.Masquerades {
		for _, r := range pods {
			if r.Overlaps(m.Source) {
				return fmt.Errorf("[[masquerade]] %d: source: %s has addresses of pods.ranges, "+
					"which pods.masquerade is for", i+1, m.Source)
			}
		}
	}
	for i, b := range s.Binats {
		for _, r := range pods {
			if r.Contains(b.To) || r.Contains(b.Listen) {
				return fmt.Errorf("[[binat]] %d: %s or %s is in pods.ranges; publish the ports "+
					"with the pod: weir pod attach --publish", i+1, b.Listen, b.To)
			}
		}
	}
	return nil
}
