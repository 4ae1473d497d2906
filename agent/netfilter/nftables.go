package netfilter

import (
	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// families are those whose tables see IP packets on their way through the host.
var families = []uint8{unix.NFPROTO_INET, unix.NFPROTO_IPV4, unix.NFPROTO_IPV6}

// nftables returns the first chain of nftables with a rule that may translate a packet of the
// scope, "" if there is none.
func (s *Scope) nftables() (string, error) {
	for _, family := range families {
		chains, err := nl.NFTChains(family)
		if err != nil {
			return "", err
		}
		for _, c := range chains {
			if c.Type != "nat" ||
				c.Hook != unix.NF_INET_PRE_ROUTING && c.Hook != unix.NF_INET_POST_ROUTING {
				continue
			}
			found, err := s.chain(c, map[string]bool{})
			if found != "" || err != nil {
				return found, err
			}
		}
	}
	return "", nil
}

// chain looks at the rules of a chain and of those that it jumps to, each once.
func (s *Scope) chain(c nl.NFTChain, seen map[string]bool) (string, error) {
	seen[c.Name] = true
	rules, err := nl.NFTRules(c)
	if err != nil {
		return "", err
	}
	for _, r := range rules {
		asks, does := readRule(r)
		if s.misses(&asks) {
			continue
		}
		if does.translates || does.anywhere || does.masquerades && !s.Masquerade {
			return describe(c), nil
		}
		if does.jump != "" && !seen[does.jump] {
			next := c
			next.Name = does.jump
			found, err := s.chain(next, seen)
			if found != "" || err != nil {
				return found, err
			}
		}
	}
	return "", nil
}
