package peers

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/weirnet/weir/overlay"
)

// Settings are the section [overlay]: the encrypted tunnel to other nodes.
type Settings struct {
	On      bool           // the section is there; without it the tunnel is made for the first peer
	Name    string         // of the interface, for rules
	Port    uint16         // of the encrypted packets, UDP
	Addrs   []netip.Prefix // of the interface; pods need none
	KeyFile string         // "" for Files.Key
	MTU     int            // 0 chooses
	NoWG    bool           // no socket for wg(8)
	Backend Backend
}

// Backend is which WireGuard carries the packets.
type Backend string

// The back ends: the kernel's, ours in user space, and the kernel's where it has one.
const (
	BackendAuto   Backend = "auto"
	BackendKernel Backend = "kernel"
	BackendUser   Backend = "user"
)

// DefaultSettings is the section when nothing is set.
func DefaultSettings() Settings {
	return Settings{Name: "weir0", Port: 51820, Backend: BackendUser}
}

// File is the section as it is written.
type File struct {
	Name  *string  `toml:"name"`
	Port  *int     `toml:"port"`
	Addrs []string `toml:"addresses"`
	Key   string   `toml:"key"`
	MTU   *int     `toml:"mtu"`
	WG    *bool    `toml:"wg"`

	Backend *string `toml:"backend"`
}

// Apply lays the section over its defaults.
func (f *File) Apply(s *Settings) error {
	if f == nil {
		return nil
	}
	s.On = true
	if f.Name != nil {
		s.Name = *f.Name
		// The kernel has space for 15 bytes. The other characters mean something else in rules and
		// paths.
		if s.Name == "" || len(s.Name) > 15 || strings.ContainsAny(s.Name, "/:*?[% \t\n") ||
			strings.HasPrefix(s.Name, ".") {
			return fmt.Errorf(`overlay.name: %q is not a name for an interface; write "weir0"`,
				s.Name)
		}
	}
	if f.Port != nil {
		if *f.Port < 1 || *f.Port > 65535 {
			return fmt.Errorf("overlay.port: %d is not between 1 and 65535", *f.Port)
		}
		s.Port = uint16(*f.Port)
	}
	for _, a := range f.Addrs {
		p, err := netip.ParsePrefix(a)
		if err != nil {
			return fmt.Errorf(`overlay.addresses: %q is not an address with a length; `+
				`write "10.99.0.1/32"`, a)
		}
		if slices.Contains(s.Addrs, p) {
			return fmt.Errorf("overlay.addresses: %s is there twice", p)
		}
		s.Addrs = append(s.Addrs, p)
	}
	if s.KeyFile = f.Key; s.KeyFile != "" && !filepath.IsAbs(s.KeyFile) {
		return fmt.Errorf("overlay.key: %q is not an absolute path", s.KeyFile)
	}
	if f.MTU != nil {
		if s.MTU = *f.MTU; s.MTU < overlay.MinMTU || s.MTU > 65000 {
			return fmt.Errorf("overlay.mtu: %d is not between %d and 65000", s.MTU, overlay.MinMTU)
		}
	}
	s.NoWG = f.WG != nil && !*f.WG
	if f.Backend != nil {
		switch s.Backend = Backend(*f.Backend); s.Backend {
		case BackendAuto, BackendKernel, BackendUser:
		default:
			return fmt.Errorf(`overlay.backend: %q is not "user", "kernel" or "auto"`,
				*f.Backend)
		}
	}
	return nil
}
