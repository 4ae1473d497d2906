package host

import (
	"fmt"
	"path"
	"strings"
)

// Settings are what weir.toml sets about interfaces.
type Settings struct {
	// Interfaces are the globs of the interfaces to guard. The loopback is guarded only when it is
	// named itself.
	Interfaces []string
}

// DefaultSettings guard every interface but the loopback.
func DefaultSettings() Settings { return Settings{Interfaces: []string{"*"}} }

// CheckInterfaces refuses what can match no interface name.
func CheckInterfaces(globs []string) error {
	for _, g := range globs {
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
	for _, g := range s.Interfaces {
		if g == name {
			return true
		}
		if ok, _ := path.Match(g, name); ok && name != "lo" {
			return true
		}
	}
	return false
}
