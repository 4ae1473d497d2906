package services

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/packet"
)

// maxServices is how many services there can be: the engine's map has space for four times as many.
const maxServices = 1024

var nameForm = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?$`)

// specOf reads a request.
func specOf(r api.AddService) (Spec, error) {
	s := Spec{Name: r.Name, Proto: r.Proto, At: r.At, Table: r.Table, Port: r.Port}
	if s.Proto == 0 {
		s.Proto = packet.ProtoTCP
	}
	if s.Port == 0 {
		s.Port = s.At.Port()
	}
	return s, s.check()
}

// check refuses what is wrong with a service by itself.
func (s *Spec) check() error {
	a := s.At.Addr()
	key, _, isLabel := strings.Cut(s.Table, "=")
	switch {
	case !nameForm.MatchString(s.Name):
		return fmt.Errorf("service %q: a name has letters, digits, '_', '.' and '-', at most 63",
			s.Name)
	case s.Proto != packet.ProtoTCP && s.Proto != packet.ProtoUDP:
		return fmt.Errorf("service %s: %s has no services; tcp and udp have", s.Name, s.Proto)
	case !a.IsValid() || s.At.Port() == 0 || a.Zone() != "" || a.Is4In6():
		return fmt.Errorf("service %s: %s is not an address and a port; write 10.200.0.10:80, or "+
			"[fd00:200::10]:80", s.Name, s.At)
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a.IsLinkLocalUnicast() ||
		a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return hinted{fmt.Sprintf("service %s: %s is not an address that others can send to",
			s.Name, a), "take an address that nothing else has, such as 10.200.0.10"}
	case !isLabel || key == "":
		return fmt.Errorf("service %s: table(%s) is not the table of a label; write "+
			"table(KEY=VALUE)", s.Name, s.Table)
	case s.Port == 0:
		return fmt.Errorf("service %s: ports of pods go from 1 to 65535", s.Name)
	}
	return nil
}

// hinted is an error that says what to do.
type hinted struct{ what, hint string }

func (e hinted) Error() string { return e.what }

// Hint returns what to do.
func (e hinted) Hint() string { return e.hint }

// checkAgainst refuses a service that the host, or another service, does not leave space for. r is
// the record without it.
func (s *Manager) checkAgainst(spec *Spec, r *record) error {
	a := spec.At.Addr()
	what := func(format string, args ...any) string {
		return fmt.Sprintf("service %s: ", spec.Name) + fmt.Sprintf(format, args...)
	}
	if len(s.config.Ranges) == 0 {
		return hinted{what("this node gives no networks to containers"),
			"set [pods] ranges in weir.toml"}
	}
	family := false
	for _, range_ := range s.config.Ranges {
		family = family || range_.Addr().Is4() == a.Is4()
		if range_.Contains(a) {
			return hinted{what("%s is in pods.ranges, %s", a, range_),
				"choose an address that nothing else has, for example from 10.200.0.0/16"}
		}
	}
	if !family {
		return hinted{what("no pod has an address of the family of %s", a),
			"add a range of that family to [pods] ranges in weir.toml"}
	}
	held := map[netip.Addr]bool{}
	for _, h := range r.Held {
		held[h] = true
	}
	if s.config.IsMe(a) && !held[a] {
		return hinted{what("%s is an address of this host", a),
			"choose one that nothing else has; for the host's own address, publish a port of a pod"}
	}
	for _, o := range r.Services {
		if o.At == spec.At && o.Proto == spec.Proto {
			return hinted{what("%s port %d of %s is that of service %s", spec.Proto,
				spec.At.Port(), a, o.Name), "weir service remove " + o.Name}
		}
	}
	if len(r.Services) >= maxServices {
		return hinted{what("there are %d services, the maximum",
			len(r.Services)), "weir service list"}
	}
	return nil
}
