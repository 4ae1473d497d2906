package pod

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/internal/nl"
)

// Damaged reports a record that could not be read. It is kept under another name.
type Damaged struct {
	File string // where it is now
	// Pod is the container that runs on without the record; "" when its interface is gone.
	Pod string
	// Labels are those that the pod keeps; nil when they are not known any more.
	Labels map[string]string
	Named  bool // whether the pod keeps its name
	Err    error
}

func (d *Damaged) Error() string {
	if d.Pod == "" {
		return fmt.Sprintf("pod record %s cannot be used, and is not needed: %v", d.File, d.Err)
	}
	keeps, lost, then := "", "published ports and limits", ""
	switch {
	case d.Named && d.Labels != nil:
		keeps = ", and keeps its name and labels"
	case d.Named:
		keeps, lost = ", and keeps its name", "labels, "+lost
	case d.Labels != nil:
		keeps, lost = ", and keeps its labels", "name, "+lost
	default:
		lost = "name, labels, " + lost
	}
	if !d.Named || d.Labels == nil {
		then = "; rules that name what is lost do not match it"
	}
	return fmt.Sprintf("pod record %s cannot be used: %v; container %s runs on without its %s%s%s",
		d.File, d.Err, d.Pod, lost, keeps, then)
}

func (d *Damaged) Unwrap() error { return d.Err }

// Hint returns what to do.
func (d *Damaged) Hint() string {
	if d.Pod == "" {
		return "remove the file when you have read this"
	}
	return "restart the container, or detach it and attach it again: weir pod detach " + d.Pod
}

// load reads the records. One that cannot be used is set aside and reported to
// Config.OnRecordError. The pod itself is not affected: it gets a new record from what the kernel
// knows.
func (m *Manager) load() ([]*Pod, error) {
	if err := m.store.sweep(); err != nil {
		m.config.OnRecordError(err)
	}
	pods, damaged, err := m.store.load()
	if err != nil {
		return nil, err
	}
	for _, b := range damaged {
		p, named, err := podFromHostEnd(m.conn, b.hostIf, m.config.Labels)
		if err != nil {
			return nil, fmt.Errorf("pod record %s: %w: %w", b.file, b.err, err)
		}
		report := &Damaged{File: b.file, Err: b.err, Named: named}
		why := "damaged"
		if b.newer {
			why = "newer"
		}
		// The new record replaces the old one: without any, the next start would remove the pod.
		if aside, err := atomicfile.LinkAside(b.file, why); err == nil {
			report.File = aside
		}
		if p == nil {
			if err := atomicfile.Remove(b.file); err != nil {
				m.config.OnRecordError(err)
			}
		} else {
			p.Created, report.Pod, report.Labels = m.now().UTC(), p.Container, p.Labels
			m.gatewaysOf(p)
			pods = append(pods, p)
			if err := m.store.save(p); err != nil {
				m.config.OnRecordError(err)
			}
		}
		m.config.OnRecordError(report)
	}
	return pods, nil
}

// podFromHostEnd makes a pod from its host end: the alias is its key and, if named, its name, the
// permanent neighbours are its addresses. labels returns the labels of the pod with these
// addresses: they are set before the neighbours, and removed after them. p is nil if there is no
// such interface of ours.
func podFromHostEnd(conn *nl.Conn, hostEnd string,
	labels func([]netip.Addr) map[string]string) (p *Pod, named bool, err error) {
	l, err := conn.LinkByName(hostEnd)
	if errors.Is(err, nl.ErrNoLink) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	key, name, ours := fromAlias(l.Alias)
	container, ifName, two := strings.Cut(key, "/")
	if !ours || !two || hostIf(key) != hostEnd {
		return nil, false, nil
	}
	if named = name != ""; !named {
		name = container
	}
	mac, hostMAC := macs(key)
	spec := Spec{Container: container, Name: name, IfName: ifName, MAC: MAC(mac), MTU: l.MTU}
	p = &Pod{Spec: spec, Key: key, HostIf: hostEnd, HostMAC: hostMAC}
	neighs, err := conn.Neighs(l.Index)
	if err != nil {
		return nil, false, err
	}
	for _, n := range neighs {
		ours := n.State&unix.NUD_PERMANENT != 0 && len(n.HardwareAddr) == len(mac)
		if ours && !n.Addr.IsLinkLocalUnicast() && !n.Addr.IsMulticast() {
			p.Addrs, p.MAC = append(p.Addrs, n.Addr), MAC(n.HardwareAddr)
		}
	}
	if p.Ready = len(p.Addrs) > 0; p.Ready { // else the attach was interrupted
		p.Labels = labels(p.Addrs)
	}
	return p, named, nil
}

// gatewaysOf gives a pod the gateways of its families. An address outside the ranges came from
// another IPAM.
func (m *Manager) gatewaysOf(p *Pod) {
	for _, pool := range m.pools {
		for _, a := range p.Addrs {
			if a.Is4() == pool.Gateway().Is4() && !slices.Contains(p.Gateway, pool.Gateway()) {
				p.Gateway = append(p.Gateway, pool.Gateway())
				p.ExternalIPAM = p.ExternalIPAM || !pool.Prefix().Contains(a)
			}
		}
	}
}

// removeDamaged removes what is left of a pod whose record cannot be used: its interface, the
// record, and copies that were set aside.
func removeDamaged(conn *nl.Conn, s store, name string) error {
	p, _, err := podFromHostEnd(conn, name, func([]netip.Addr) map[string]string { return nil })
	if err == nil && p != nil {
		err = removeHostEnd(conn, p)
	}
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(s.dir, name+recordEnding+"*"))
	for _, f := range files {
		err = errors.Join(err, atomicfile.Remove(f))
	}
	return err
}
