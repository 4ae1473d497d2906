package cluster

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// MaxChunkPods is how many pods a document has at most.
const MaxChunkPods = 32

// maxMembers is how many members of tables of labels the pods of a document are: each address has
// each label. A member takes about 50 bytes at every other host, and more in its kernel, while the
// document has an address and a label once.
const maxMembers = 1024

// Limits of a pod.
const (
	maxPodAddrs  = 8
	maxPodLabels = 64
	maxPodText   = 253 // bytes of a name
	maxLabel     = 63  // bytes of KEY=VALUE: the longest name of a table that rules can write
)

// Pods is the document below PodsTree: some pods of a host.
type Pods struct {
	Versioned
	Pods []Pod `json:"pods"`
}

// Pod is a pod as other hosts see it.
type Pod struct {
	Name   string            `json:"name"`
	Addrs  []netip.Addr      `json:"addrs"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Check implements Document.
func (p *Pods) Check() error {
	if len(p.Pods) == 0 || len(p.Pods) > MaxChunkPods {
		return fmt.Errorf("%d pods, 1 to %d are possible; without any the value is empty",
			len(p.Pods), MaxChunkPods)
	}
	for i := range p.Pods {
		if err := p.Pods[i].check(); err != nil {
			return fmt.Errorf("pod %q: %w", p.Pods[i].Name, err)
		}
	}
	if n := p.members(); n > maxMembers {
		return fmt.Errorf("the pods are %d members of tables of labels, at most %d are possible: "+
			"give the host fewer label keys", n, maxMembers)
	}
	return ascending("pods", p.Pods, func(a, b Pod) int { return strings.Compare(a.Name, b.Name) })
}

// members is how many members of tables of labels the pods are.
func (p *Pods) members() (n int) {
	for i := range p.Pods {
		n += p.Pods[i].members()
	}
	return n
}

func (p *Pod) members() int { return len(p.Addrs) * len(p.Labels) }

func (p *Pod) check() error {
	if p.Name == "" || !printable(p.Name) {
		return errors.New("not a name")
	}
	if len(p.Addrs) == 0 || len(p.Addrs) > maxPodAddrs || len(p.Labels) > maxPodLabels {
		return fmt.Errorf("%d addresses and %d labels", len(p.Addrs), len(p.Labels))
	}
	for _, a := range p.Addrs {
		if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
			return fmt.Errorf("%v is not an address of a pod", a)
		}
	}
	for key, value := range p.Labels {
		if err := checkLabelKey(key); err != nil {
			return err
		}
		if !isLabel(key, value) {
			return fmt.Errorf("label %s=%s is not text of at most %d bytes", key, value, maxLabel)
		}
	}
	return ascending("addresses", p.Addrs, netip.Addr.Compare)
}

// checkLabelKey refuses a key that would make the name of a table ambiguous: KEY=VALUE.
func checkLabelKey(key string) error {
	if key == "" || key == AnyLabel || strings.Contains(key, "=") || !printable(key) {
		return fmt.Errorf("%q is not the key of a label", key)
	}
	return nil
}

// isLabel reports whether a label with a checked key can be the name of a table.
func isLabel(key, value string) bool {
	return len(key)+len("=")+len(value) <= maxLabel && printable(value)
}

// printable reports whether a text fits and has visible characters of ASCII only.
func printable(text string) bool {
	return len(text) <= maxPodText && !strings.ContainsFunc(text, func(c rune) bool {
		return c <= ' ' || c > '~'
	})
}

// mayHave checks a claim: the host with this certificate may have the pod.
func (n *Node) mayHave(p *Pod) error {
	for _, a := range p.Addrs {
		if !n.Owns(a) {
			return fmt.Errorf("pod %s: %v is not in the ranges of host %s", p.Name, a, n.Name)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if !n.MayLabel(key) {
			return fmt.Errorf("pod %s: host %s may not give labels with the key %s", p.Name,
				n.Name, key)
		}
	}
	return nil
}
