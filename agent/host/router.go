package host

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/internal/nl"
)

// Router makes the host a router.
//
// As soon as the kernel forwards it forgets the IPv6 default routes of router advertisements and
// ignores further ones, unless accept_ra of the interface is 2 (ip-sysctl.rst). So Router sets that
// where the host has accepted advertisements.
type Router struct {
	record string // of the kernel's settings before, see recordSysctls
	// The settings before, if the host was not a router for IPv6 then and is to be one; else nil.
	before atomic.Pointer[map[string]string]
	kind   func(name string) (string, error) // linkKind
	// the host is to forward IPv4, IPv6
	four, six atomic.Bool
}

// NewRouter returns a Router that has changed nothing. record is the file that recordSysctls
// writes.
func NewRouter(record string) *Router { return &Router{record: record, kind: linkKind} }

// EnableForwarding makes the host a router for the families asked for, and records what it was
// before.
func (r *Router) EnableForwarding(four, six bool) error {
	if four || six {
		if err := r.PrepareForwarding(four, six); err != nil {
			return err
		}
	}
	var errs []error
	if four {
		errs = append(errs, setSysctl(forwarding4, "1"))
	}
	if six {
		errs = append(errs, setSysctl(forwarding6("all"), "1"))
	}
	return errors.Join(errs...)
}

// PrepareForwarding comes before the host becomes a router for the families asked for. It records
// what the host is and, for IPv6, has its interfaces continue to accept router advertisements, also
// if nothing could be recorded.
func (r *Router) PrepareForwarding(four, six bool) error {
	r.four.Store(r.four.Load() || four)
	r.six.Store(r.six.Load() || six)
	before, err := recordSysctls(r.record)
	if !six {
		return err
	}
	var names []string
	files, _ := filepath.Glob(filepath.Join(sysctlDir, acceptRA("*")))
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	if before == nil {
		before = map[string]string{forwarding6("all"): readSysctl(forwarding6("all"))}
		for _, name := range names {
			before[acceptRA(name)] = readSysctl(acceptRA(name))
		}
	}
	if before[forwarding6("all")] != "0" {
		return err
	}
	r.before.Store(&before)
	for _, name := range names {
		err = errors.Join(err, r.AcceptRA(name))
	}
	return err
}

// AcceptRA sets accept_ra of an interface that came or changed, unless it forwarded before. Those
// of containers have their settings from "default", which stays as it is: no container is to be the
// host's router. Names do not tell them all, so an interface that was not there before has to be of
// a kind that leads to other hosts.
func (r *Router) AcceptRA(name string) error {
	before := r.before.Load()
	if before == nil || (*before)[forwarding6(name)] == "1" || name == "all" || name == "default" ||
		name == "lo" || InterfaceMaker(name) != "" {
		return nil
	}
	setting := acceptRA(name)
	if readSysctl(setting) != "1" {
		return nil
	}
	if _, known := (*before)[setting]; !known {
		kind, err := r.kind(name)
		if err != nil || !mayBeUplink(kind) {
			return err
		}
	}
	return setSysctl(setting, routerAcceptsRA)
}

// mayBeUplink reports whether an interface of a kind may lead to the host's router. Bridges and
// tunnels may, too, but as well to containers and guests.
func mayBeUplink(kind string) bool { return kind == "device" || kind == "bond" || kind == "vlan" }

// linkKind returns the kind of an interface, "" if it is gone.
func linkKind(name string) (string, error) {
	conn, err := routes.Open()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	l, err := conn.LinkByName(name)
	if errors.Is(err, nl.ErrNoLink) {
		err = nil
	}
	return l.Kind, err
}

// CheckForwarding reports as a problem that the host is to be a router and does not forward.
// Another program, or `sysctl --system` with a file of the host, has disabled it then.
func (r *Router) CheckForwarding(problems *problem.List) {
	for name, needed := range map[string]bool{forwarding4: r.four.Load(),
		forwarding6("all"): r.six.Load()} {
		key := "net." + strings.ReplaceAll(name, "/", ".")
		if !needed || readSysctl(name) != "0" {
			problems.Solved(key)
			continue
		}
		problems.Set(key, key+" was set to 0: packets between containers or forwarded ports and "+
			"other hosts are dropped", "look for it in /etc/sysctl.d; then: sysctl -w "+key+"=1")
	}
}

const forwarding4 = "ipv4/ip_forward"

func acceptRA(iface string) string { return "ipv6/conf/" + iface + "/accept_ra" }

func forwarding6(iface string) string { return "ipv6/conf/" + iface + "/forwarding" }

// routerAcceptsRA is accept_ra of an interface that accepts advertisements although it forwards.
const routerAcceptsRA = "2"

// readSysctl returns the value of one of the kernel's settings, "" if it has none.
func readSysctl(name string) string {
	value, err := os.ReadFile(filepath.Join(sysctlDir, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}
