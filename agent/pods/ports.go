package pods

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/internal/nl"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

// checkPublished refuses a port that the node itself uses: packets to a published port go to the
// pod, so the host's own service would get none.
func (s *Service) checkPublished(ctx context.Context, spec *pod.Spec) error {
	wanted := s.newlyPublished(spec)
	if len(wanted) == 0 {
		return nil
	}
	if port := s.config.TunnelPort(); port != 0 {
		for _, pub := range wanted {
			if pub.Proto == packet.ProtoUDP && pub.HostPort == port {
				return fmt.Errorf("pod %s: udp port %d is that of the tunnel to other nodes; "+
					"publish another one, or set overlay.port", spec.Name, pub.HostPort)
			}
		}
	}
	listeners, err := nl.Listeners(nil)
	if err != nil {
		return fmt.Errorf("pod %s: list the ports that the host uses: %w", spec.Name, err)
	}
	for _, pub := range wanted {
		for _, l := range listeners {
			if l.Proto != pub.Proto || l.Local.Port() != pub.HostPort ||
				!meets(pub.Host.Unmap(), l.Local.Addr()) {
				continue
			}
			who := ownerOf(l.Inode)
			if who.keepsPortsFor(clientPID(ctx)) {
				continue
			}
			return fmt.Errorf("pod %s: %s port %d is used by the host itself, at %s (%s); publish "+
				"another port, or another address of the host",
				spec.Name, pub.Proto, pub.HostPort, l.Local.Addr(), who)
		}
	}
	return nil
}

// newlyPublished are the ports that a pod does not have yet: an attach may be repeated.
func (s *Service) newlyPublished(spec *pod.Spec) []pod.Publish {
	manager := s.manager.Load()
	if manager == nil {
		return spec.Publish
	}
	has, err := manager.Find(spec.Container, spec.IfName)
	if err != nil { // there is no such pod
		return spec.Publish
	}
	return slices.DeleteFunc(slices.Clone(spec.Publish), func(pub pod.Publish) bool {
		return slices.Contains(has.Publish, pub)
	})
}

// CheckTunnelPort refuses a tunnel at a port that a pod has: the pod would get what other nodes
// send.
func (s *Service) CheckTunnelPort(port uint16) error {
	for _, p := range s.list() {
		for _, pub := range p.Publish {
			if pub.Proto == packet.ProtoUDP && pub.HostPort == port {
				return fmt.Errorf("udp port %d is published for pod %s; detach it, or set "+
					"overlay.port",
					port, p.Name)
			}
		}
	}
	return nil
}

// meets reports that what is sent to the published address may be meant for a socket at the other
// one. The invalid address stands for every address of the host; a socket at :: also receives IPv4.
func meets(published, socket netip.Addr) bool {
	if !published.IsValid() || published.IsUnspecified() {
		return !published.IsValid() || published.Is6() == socket.Is6() ||
			socket == netip.IPv6Unspecified()
	}
	return published == socket || socket == netip.IPv6Unspecified() || socket.IsUnspecified() &&
		socket.Is4() == published.Is4()
}

// ephemeralFile has the range of ports from which the kernel takes those of the host's own
// connections.
const ephemeralFile = "/proc/sys/net/ipv4/ip_local_port_range"

// fewestPorts is how many ports must be left for masquerading when the host's ephemeral ones are
// taken off.
const fewestPorts = 4096

// masqueradePorts are the ports that hidden pods get: as the settings say, or those from 1024 on
// that the host does not take for its own connections. Where it takes nearly all, they are shared:
// a port with a socket is never chosen.
func masqueradePorts(s *Settings, ephemeral string) []forward.PortRange {
	if len(s.MasqueradePorts) > 0 {
		return s.MasqueradePorts
	}
	all := forward.PortRange{First: 1024, Last: 65535}
	f := strings.Fields(ephemeral)
	if len(f) != 2 {
		return []forward.PortRange{all}
	}
	first, err1 := strconv.ParseUint(f[0], 10, 16)
	last, err2 := strconv.ParseUint(f[1], 10, 16)
	if err1 != nil || err2 != nil || last < first || last < uint64(all.First) {
		return []forward.PortRange{all}
	}
	var left []forward.PortRange
	n := 0
	if first > uint64(all.First) {
		left = append(left, forward.PortRange{First: all.First, Last: uint16(first - 1)})
		n += int(first) - int(all.First)
	}
	if last < uint64(all.Last) {
		left = append(left, forward.PortRange{First: uint16(last + 1), Last: all.Last})
		n += int(all.Last) - int(last)
	}
	if n < fewestPorts {
		return []forward.PortRange{all}
	}
	return left
}

// parsePorts reads ranges of ports: "1024-32767,61000-65535".
func parsePorts(text string) ([]forward.PortRange, error) {
	var all []forward.PortRange
	for one := range strings.SplitSeq(text, ",") {
		a, b, ok := strings.Cut(strings.TrimSpace(one), "-")
		if !ok {
			b = a
		}
		first, err1 := strconv.ParseUint(a, 10, 16)
		last, err2 := strconv.ParseUint(b, 10, 16)
		if err1 != nil || err2 != nil || first == 0 || last < first {
			return nil, fmt.Errorf(`%q is not a range of ports; write "1024-32767,61000-65535"`,
				one)
		}
		all = append(all, forward.PortRange{First: uint16(first), Last: uint16(last)})
	}
	slices.SortFunc(all, func(a, b forward.PortRange) int { return int(a.First) - int(b.First) })
	for i := 1; i < len(all); i++ {
		if all[i].First <= all[i-1].Last {
			return nil, fmt.Errorf("port %d lies in two ranges", all[i].First)
		}
	}
	if len(all) > forward.MaxPortRanges {
		return nil, fmt.Errorf("%d ranges of ports are too many; at most %d", len(all),
			forward.MaxPortRanges)
	}
	return all, nil
}
