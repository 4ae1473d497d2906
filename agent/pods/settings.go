package pods

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// Settings are the section [pods].
type Settings struct {
	Ranges     []netip.Prefix // at most one of each family; none: this node has no pods
	MTU        int
	Link       string // kind of the pairs of new pods, pod.LinkVeth or pod.LinkNetkit
	Masquerade bool   // packets of pods to other networks leave with the host's address
	Docker     bool   // listen for dockerd
	DNS        bool   // answer pods that ask for names
	// MasqueradePorts are those that the sources of hidden pods get; none: those that the host
	// leaves.
	MasqueradePorts []forward.PortRange
}

// DefaultSettings is the section when nothing is set.
func DefaultSettings() Settings {
	return Settings{MTU: 1500, Link: pod.LinkVeth, Masquerade: true, DNS: true}
}

// File is the section as it is written. Pointers are nil for what was not set.
type File struct {
	Ranges          []string `toml:"ranges"`
	MTU             *int     `toml:"mtu"`
	Link            *string  `toml:"link"`
	Masquerade      *bool    `toml:"masquerade"`
	MasqueradePorts string   `toml:"masquerade_ports"`
	Docker          *bool    `toml:"docker"`
	DNS             *bool    `toml:"dns"`
}

// Apply lays the section over its defaults.
func (f *File) Apply(s *Settings) error {
	for _, r := range f.Ranges {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return fmt.Errorf(`pods.ranges: %q is not a range; write "10.88.0.0/24"`, r)
		}
		if _, err := pod.NewPool(p); err != nil {
			return fmt.Errorf("pods.ranges: %w", err)
		}
		if slices.ContainsFunc(s.Ranges, func(other netip.Prefix) bool {
			return other.Addr().Is4() == p.Addr().Is4()
		}) {
			return fmt.Errorf("pods.ranges: %s: there can be only one range of a family", p)
		}
		s.Ranges = append(s.Ranges, p)
	}
	if f.MTU != nil {
		if s.MTU = *f.MTU; s.MTU < 576 || s.MTU > 65535 {
			return fmt.Errorf("pods.mtu: %d is not between 576 and 65535", s.MTU)
		}
	}
	if f.Link != nil {
		if s.Link = *f.Link; s.Link != pod.LinkVeth && s.Link != pod.LinkNetkit {
			return fmt.Errorf(`pods.link: %q is neither "veth" nor "netkit"`, s.Link)
		}
	}
	if f.Masquerade != nil {
		s.Masquerade = *f.Masquerade
	}
	if f.MasqueradePorts != "" {
		ports, err := parsePorts(f.MasqueradePorts)
		if err != nil {
			return fmt.Errorf("pods.masquerade_ports: %w", err)
		}
		s.MasqueradePorts = ports
	}
	if f.Docker != nil {
		s.Docker = *f.Docker
	}
	if f.DNS != nil {
		s.DNS = *f.DNS
	}
	return nil
}
