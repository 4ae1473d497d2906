package services

import (
	"net/netip"
	"slices"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// backend is a pod of a service.
type backend struct {
	pod string // its name
	at  netip.AddrPort
}

// allBackends are the pods of each service, and how many pods are left out because there is no
// space for them. The services that were added first have theirs first.
func allBackends(specs []Spec, pods []pod.Pod) (all [][]backend, left int) {
	space := forward.MaxAllBackends
	for i := range specs {
		of := backends(&specs[i], pods)
		n := min(len(of), forward.MaxBackends, space)
		all = append(all, of[:n])
		space, left = space-n, left+len(of)-n
	}
	return all, left
}

// backends are the pods of a service, in order of address: those with the label, of this host.
func backends(spec *Spec, pods []pod.Pod) (all []backend) {
	for i := range pods {
		p := &pods[i]
		if !hasLabel(p, spec.Table) {
			continue
		}
		for _, a := range p.Addrs {
			if a.Is4() == spec.At.Addr().Is4() {
				all = append(all, backend{p.Name, netip.AddrPortFrom(a, spec.Port)})
			}
		}
	}
	slices.SortFunc(all, func(a, b backend) int { return a.at.Compare(b.at) })
	return slices.CompactFunc(all, func(a, b backend) bool { return a.at == b.at })
}

// hasLabel reports whether a pod is in the table of a label.
func hasLabel(p *pod.Pod, table string) bool {
	for key, value := range p.Labels {
		if key+"="+value == table {
			return true
		}
	}
	return false
}
