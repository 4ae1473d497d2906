package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/packet"
)

// Flags of the map iface_sysctls, enum in bpf/lib/source_validation.h.
const (
	sysctlAcceptLocal = 1
	sysctlRPStrict    = 2
	sysctlRPLoose     = 4
)

// putIfaceSysctlsLocked writes what the settings of interfaces say of sources, and reports whether
// anything changed. Packets whose path is cached are looked at again after the next
// putForwardingLocked.
func (e *Engine) putIfaceSysctlsLocked(changed, gone []firewall.Interface) (news bool, err error) {
	for _, i := range changed {
		var was uint32
		err := e.objects.IfaceSysctls.Lookup(i.Index, &was)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return news, fmt.Errorf("read the settings of interface %s: %w", i.Name, err)
		}
		now := sysctlFlags(i)
		if was == now {
			continue
		}
		news = true
		if now == 0 {
			err = e.objects.IfaceSysctls.Delete(i.Index)
		} else {
			err = e.objects.IfaceSysctls.Put(i.Index, now)
		}
		if err != nil {
			return news, fmt.Errorf("write the settings of interface %s: %w", i.Name, err)
		}
	}
	for _, i := range gone {
		err := e.objects.IfaceSysctls.Delete(i.Index)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return news, fmt.Errorf("delete the settings of interface %s: %w", i.Name, err)
		}
	}
	if e.synced {
		return news, nil
	}
	return true, prune(e.objects.IfaceSysctls, func(index uint32) bool {
		_, there := interfaceOf(e.ifs, index)
		return there
	})
}

func sysctlFlags(i firewall.Interface) (flags uint32) {
	if i.AcceptLocal {
		flags |= sysctlAcceptLocal
	}
	switch i.ReversePath {
	case firewall.ReverseStrict:
		flags |= sysctlRPStrict
	case firewall.ReverseLoose:
		flags |= sysctlRPLoose
	}
	return flags
}

// ownBits returns config.own for the addresses of interfaces, see own_bit in bpf/lib/cond.h, and
// config.local. Any address may be in a prefix to which a local route leads.
func ownBits(ifs []firewall.Interface) (bits [4]uint64, local uint32) {
	for _, i := range ifs {
		for _, p := range i.Mine() {
			if !p.IsSingleIP() {
				return [4]uint64{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}, 1
			}
			hi, lo := packet.AddrWords(p.Addr())
			n := (hi*3 ^ lo) * 0x9e3779b97f4a7c15 >> 56
			bits[n/64] |= 1 << (n % 64)
		}
	}
	return bits, 0
}
