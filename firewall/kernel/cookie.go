package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Cookies are the counters of SYN cookies.
type Cookies struct {
	Impossible string // "" if they can be used; else why not
	On         bool   // SYNs are answered by cookies now
	TimesOn    int    // how often they were switched on
	Sent       uint64
	Redeemed   uint64 // came back, without copies: connections
}

// cookiesFunction hands a connection that was opened by a cookie of ours to the stack: Linux 6.8.
const cookiesFunction = "bpf_sk_assign_tcp_reqsk"

// cookieUses returns how SYN cookies can be used in this network namespace, or in words why they
// cannot. before is what the engine before found, 0 for nothing: its maps are gone with a boot, so
// what it used this kernel has. To look takes 15 ms.
func cookieUses(before uint32) (bits uint32, why string, err error) {
	if before&cookieUse == 0 {
		if why, err = lacksCookieFunction(); why != "" || err != nil {
			return 0, why, err
		}
	}
	on, err := sysctl("tcp_syncookies")
	if err != nil || !on {
		return 0, "net.ipv4.tcp_syncookies is 0", err
	}
	bits = cookieUse | cookieStamps
	for _, name := range []string{"tcp_timestamps", "tcp_sack", "tcp_window_scaling"} {
		if on, err = sysctl(name); err != nil {
			return 0, "", err
		} else if !on {
			bits = cookieUse
		}
	}
	return bits, "", nil
}

// lacksCookieFunction says why the kernel cannot do what cookies need, "" if it can.
func lacksCookieFunction() (why string, err error) {
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return "", fmt.Errorf("read the kernel's types: %w", err)
	}
	var f *btf.Func
	if err := kernel.TypeByName(cookiesFunction, &f); errors.Is(err, btf.ErrNotFound) {
		return "the kernel is older than 6.8", nil
	} else if err != nil {
		return "", fmt.Errorf("look for %s in the kernel: %w", cookiesFunction, err)
	}
	return "", nil
}

// LacksCookies returns why SYN cookies cannot be used in this network namespace, "" if they can.
func LacksCookies() (why string, err error) {
	_, why, err = cookieUses(0)
	return why, err
}

// sysctl reports whether a setting of this network namespace's TCP is not 0.
func sysctl(name string) (bool, error) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		return false, err
	}
	return strings.TrimSpace(string(b)) != "0", nil
}
