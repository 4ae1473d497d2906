package nl

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// TestDevicesOfNFTChains: the hook of a chain has one link, a list of them, or beginnings of names,
// as kernels from 6.18 on write them. What is damaged hooks none.
func TestDevicesOfNFTChains(t *testing.T) {
	attr := func(kind byte, value string) []byte {
		n := 4 + len(value)
		padded := append([]byte{byte(n), 0, kind, 0}, value...)
		return append(padded, make([]byte, -n&3)...)
	}
	list := slices.Concat(attr(1, "eth0\x00"), attr(1, "x*\x00"), attr(2, "veth\x00"))
	for _, c := range []struct {
		what string
		hook NFTAttrs
		on   []string
	}{
		{"one", NFTAttrs{unix.NFTA_HOOK_DEV: []byte("eth0\x00")}, []string{"eth0"}},
		{"a list", NFTAttrs{nftaHookDevs: list, unix.NFTA_HOOK_DEV: []byte("eth1\x00")},
			[]string{"eth0", "x*", "veth", "veth12"}},
		{"none", NFTAttrs{}, nil},
		{"damaged", NFTAttrs{nftaHookDevs: list[:len(list)-5]}, nil},
	} {
		chain := NFTChain{devices: nftDevices(c.hook)}
		var on []string
		for _, name := range []string{"eth0", "eth1", "eth00", "x*", "vet", "veth", "veth12"} {
			if chain.On(name) {
				on = append(on, name)
			}
		}
		if !slices.Equal(on, c.on) {
			t.Errorf("%s: on %q, not %q", c.what, on, c.on)
		}
	}
}
