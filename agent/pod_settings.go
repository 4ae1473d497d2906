package agent

import (
	"fmt"
	"net/netip"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/pod"
)

// PodSettings are the section [pods].
type PodSettings struct {
	Ranges     []netip.Prefix // at most one of each family; none: this node has no pods
	MTU        int
	Masquerade bool // packets of pods to other networks leave with the host's address
	Docker     bool // listen for dockerd
	// MasqueradePorts are those that the sources of hidden pods get; none: those that the host
	// leaves.
	MasqueradePorts []firewall.PortRange
}

// pods lays the section [pods] over its defaults.
func (f settingsFile) pods(s *PodSettings) error {
	for _, r := range f.Pods.Ranges {
		p, err := netip.ParsePrefix(r)
		if err != nil {
			return fmt.Errorf(`pods.ranges: %q is not a range; write "10.88.0.0/24"`, r)
		}
		if _, err := pod.NewPool(p); err != nil {
			return fmt.Errorf("pods.ranges: %w", err)
		}
		s.Ranges = append(s.Ranges, p)
	}
	if f.Pods.MTU != nil {
		if s.MTU = *f.Pods.MTU; s.MTU < 576 || s.MTU > 65535 {
			return fmt.Errorf("pods.mtu: %d is not between 576 and 65535", s.MTU)
		}
	}
	if f.Pods.Masquerade != nil {
		s.Masquerade = *f.Pods.Masquerade
	}
	if f.Pods.MasqueradePorts != "" {
		ports, err := parsePorts(f.Pods.MasqueradePorts)
		if err != nil {
			return fmt.Errorf("pods.masquerade_ports: %w", err)
		}
		s.MasqueradePorts = ports
	}
	if f.Pods.Docker != nil {
		s.Docker = *f.Pods.Docker
	}
	return nil
}
