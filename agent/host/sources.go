package host

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
)

// RereadEvery is how soon a changed accept_local or rp_filter is noticed: the kernel sends no
// notification of either.
const RereadEvery = 10 * time.Second

// sourceSettings reads what the host's settings say of sources at an interface, as the kernel
// combines them (Documentation/networking/ip-sysctl.rst): accept_local of the interface or of all,
// the larger rp_filter of both. What cannot be read is 0: the interface may be gone.
func sourceSettings(name string) (local bool, reverse firewall.ReversePath) {
	number := func(dev, key string) int {
		b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", dev, key))
		if err != nil {
			return 0
		}
		n, _ := strconv.Atoi(strings.TrimSpace(string(b)))
		return n
	}
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
