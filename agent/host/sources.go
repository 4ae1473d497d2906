package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
)

// RereadEvery is how soon a changed accept_local, rp_filter or forwarding is noticed: the kernel
// sends no notification of these to rtnetlink's groups of links.
const RereadEvery = 10 * time.Second

// sourceSettings reads what the host's settings say of sources at an interface, as the kernel
// combines them (Documentation/networking/ip-sysctl.rst): accept_local of the interface or of all,
// the larger rp_filter of both. What cannot be read is 0: the interface may be gone.
func sourceSettings(name string) (local bool, reverse firewall.ReversePath) {
	number := func(dev, key string) int { return setting("ipv4", dev, key) }
	local = number("all", "accept_local") != 0 || number(name, "accept_local") != 0
	switch max(number("all", "rp_filter"), number(name, "rp_filter")) {
	case 0:
	case 1:
		reverse = firewall.ReverseStrict
	default:
		reverse = firewall.ReverseLoose
	}
	return local, reverse
}

// isRouter6 reports whether the host forwards what comes in by an interface over IPv6.
func isRouter6(name string) bool { return setting("ipv6", name, "forwarding") != 0 }

// setting reads a setting of an interface.
func setting(family, dev, key string) int {
	b, err := os.ReadFile(filepath.Join("/proc/sys/net", family, "conf", dev, key))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
	return n
}

// Reread looks at the settings of every interface again.
func (l *Links) Reread() {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.all
	for index := range l.byID {
		l.noteLocked(index)
	}
	if changed, gone := firewall.DiffInterfaces(before, l.all); !l.synced || len(changed)+
		len(gone) == 0 {
		return
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
