package kernel

import (
	"cmp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// withoutNFTPause is how long a kernel without nftables is not asked again: for each question it
// searches for a module.
const withoutNFTPause = 10 * time.Minute

// egressChains returns by interface index the chains of nftables that packets meet before the
// programs at egress, in that order. At ingress chains come behind the programs.
func (e *Engine) egressChains(c *nl.Conn) (map[uint32][]Foreign, error) {
	e.nft.Lock()
	defer e.nft.Unlock()
	if !e.withoutNFT.IsZero() && time.Since(e.withoutNFT) < withoutNFTPause {
		return nil, nil
	}
	e.withoutNFT = time.Time{}
	chains, err := nl.NFTChains(unix.NFPROTO_NETDEV)
	if nl.NFTAbsent(err) {
		e.withoutNFT = time.Now()
		return nil, nil
	}
	chains = slices.DeleteFunc(chains, func(c nl.NFTChain) bool {
		return !c.Base || c.Hook != unix.NF_NETDEV_EGRESS
	})
	if err != nil || len(chains) == 0 {
		return nil, err
	}
	slices.SortStableFunc(chains, func(a, b nl.NFTChain) int {
		return cmp.Compare(a.Priority, b.Priority)
	})
	links, err := c.Links()
	if err != nil {
		return nil, err
	}
	all := map[uint32][]Foreign{}
	for _, l := range links {
		index := uint32(l.Index)
		for i := range chains {
			if chains[i].On(l.Name) {
				all[index] = append(all[index], Foreign{Index: index, Hook: "nftables",
					Out: true, Name: chains[i].Table + " " + chains[i].Name})
			}
		}
	}
	return all, nil
}
