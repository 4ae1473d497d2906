package host

import (
	"fmt"
	"path"
	"strings"
)

// Settings are what weir.toml sets about interfaces.
type Settings struct {
	// Interfaces are the globs of the interfaces to guard. The loopback is guarded only when it is
	// named itself. Those that other programs make for their containers (InterfaceMaker) are
	// guarded only by a glob that begins with a part of their name.
	Interfaces []string
}

// DefaultSettings guard every interface but the loopback and those of other programs' containers.
func DefaultSettings() Settings { return Settings{Interfaces: []string{"*"}} }

// CheckInterfaces refuses what can match no interface name.
func CheckInterfaces(globs []string) error {
	for _, g := range globs {
		if strings.Contains(g, ",") {
			return fmt.Errorf("interfaces: %q is several names; write each on its own, as in "+
				`--iface eth0 --iface eth1, or ["eth0", "eth1"]`, g)
		}
		if _, err := path.Match(g, ""); err != nil || g == "" || strings.ContainsAny(g, "/ \t\n") {
			return fmt.Errorf(`interfaces: %q is not a name or glob of interfaces, like "eth*"`, g)
		}
	}
	return nil
}

// Guards reports whether an interface is one of those to guard. Pods always are.
func (s Settings) Guards(name string) bool {
	if strings.HasPrefix(name, "pod:") {
		return true
	}
	matched, named := s.matches(name)
	return named || matched && name != "lo" && InterfaceMaker(name) == ""
}

// Skips returns the program that made an interface which the globs match but which is not guarded
// because it belongs to that program, "" for others.
func (s Settings) Skips(name string) (maker string) {
	if matched, named := s.matches(name); !matched || named || strings.HasPrefix(name, "pod:") {
		return ""
	}
	return InterfaceMaker(name)
}

// matches reports whether a glob matches a name, and whether one does that names it.
func (s Settings) matches(name string) (matched, named bool) {
	for _, g := range s.Interfaces {
		ok, _ := path.Match(g, name)
		matched = matched || ok
		named = named || g == name || ok && name != "lo" && names(g)
	}
	return matched, named
}
