package nl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// NFTChain is a chain of nftables. Those of iptables-nft are among them.
type NFTChain struct {
	Family      uint8 // unix.NFPROTO_INET and others
	Table, Name string
	Type        string // "nat" of a base chain; empty for one that others jump to
	Base        bool   // a hook calls it
	Hook        uint32 // of a base chain: unix.NF_INET_PRE_ROUTING and others
	Drops       bool   // the policy of a base chain
	Priority    int32  // of a base chain: one with a lower number comes first
	devices     []nftDevice
}

// nftDevice is a name of links, or the beginning of names.
type nftDevice struct {
	name   string
	prefix bool
}

// On reports whether the chain of family netdev hooks a link.
func (c *NFTChain) On(link string) bool {
	return slices.ContainsFunc(c.devices, func(d nftDevice) bool {
		return d.name == link || d.prefix && strings.HasPrefix(link, d.name)
	})
}

// Verdicts of netfilter, include/uapi/linux/netfilter.h.
const (
	NFDrop   = 0
	NFAccept = 1
)

// NFTExpr is an expression of a rule of nftables: its name and its attributes.
type NFTExpr struct {
	Name  string
	Attrs NFTAttrs
}

// NFTAttrs are attributes by their type.
type NFTAttrs map[uint16][]byte

// Number returns an attribute of four bytes, 0 if it is not there.
func (a NFTAttrs) Number(kind uint16) uint32 {
	if b := a[kind]; len(b) == 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// Text returns an attribute that is a string.
func (a NFTAttrs) Text(kind uint16) string { return text(a[kind]) }

// Nested returns the attributes within an attribute.
func (a NFTAttrs) Nested(kind uint16) NFTAttrs { return attributes(a[kind]) }

func text(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// attributes returns none of what is damaged.
func attributes(b []byte) NFTAttrs {
	all := NFTAttrs{}
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return all
	}
	for _, a := range list {
		all[a.Attr.Type&nlaType] = a.Value
	}
	return all
}

const nlaType = 0x3fff // without NLA_F_NESTED and NLA_F_NET_BYTEORDER

// nfgenmsg is the header of netfilter's messages.
type nfgenmsg struct{ family uint8 }

func (m nfgenmsg) Len() int { return 4 }

// Serialize implements nl.NetlinkRequestData.
func (m nfgenmsg) Serialize() []byte { return []byte{m.family, 0, 0, 0} }

// nft asks nftables in the namespace of the calling thread, and calls f for each message of the
// answer.
func nft(what string, message, flags int, family uint8, f func(NFTAttrs),
	attrs ...*nl.RtAttr) error {
	_, err := read(what, func() ([]struct{}, error) {
		r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|message, flags)
		r.AddData(nfgenmsg{family})
		for _, a := range attrs {
			r.AddData(a)
		}
		messages, err := r.Execute(unix.NETLINK_NETFILTER, 0)
		if err != nil {
			return nil, err
		}
		for _, m := range messages {
			if len(m) >= 4 {
				f(attributes(m[4:]))
			}
		}
		return nil, nil
	})
	return err
}

// NFTGeneration returns a number that changes whenever nftables do.
func NFTGeneration() (generation uint32, err error) {
	err = nft("read the generation of nftables", unix.NFT_MSG_GETGEN, 0, unix.AF_UNSPEC,
		func(a NFTAttrs) { generation = a.Number(unix.NFTA_GEN_ID) })
	return generation, err
}

// NFTChains lists the chains of all tables of a family.
func NFTChains(family uint8) (all []NFTChain, err error) {
	err = nft("list the chains of nftables", unix.NFT_MSG_GETCHAIN, unix.NLM_F_DUMP, family,
		func(a NFTAttrs) {
			c := NFTChain{Family: family, Table: a.Text(unix.NFTA_CHAIN_TABLE),
				Name: a.Text(unix.NFTA_CHAIN_NAME)}
			if hook := a.Nested(unix.NFTA_CHAIN_HOOK); a[unix.NFTA_CHAIN_HOOK] != nil {
				c.Type = a.Text(unix.NFTA_CHAIN_TYPE)
				c.Base, c.Hook = true, hook.Number(unix.NFTA_HOOK_HOOKNUM)
				c.Priority = int32(hook.Number(unix.NFTA_HOOK_PRIORITY))
				c.devices = nftDevices(hook)
				c.Drops = a[unix.NFTA_CHAIN_POLICY] != nil &&
					a.Number(unix.NFTA_CHAIN_POLICY) == NFDrop
			}
			all = append(all, c)
		})
	return all, err
}

// Of include/uapi/linux/netfilter/nf_tables.h; the prefix since Linux 6.18.
const (
	nftaHookDevs     = 4
	nftaDevicePrefix = 2
)

// nftDevices returns the links of a hook of family netdev. With more than one there is a list of
// them; kernels before 5.5 write none.
func nftDevices(hook NFTAttrs) (all []nftDevice) {
	list, err := nl.ParseRouteAttr(hook[nftaHookDevs])
	if err != nil {
		return nil
	}
	for _, a := range list {
		all = append(all, nftDevice{text(a.Value), a.Attr.Type&nlaType == nftaDevicePrefix})
	}
	if one := hook.Text(unix.NFTA_HOOK_DEV); one != "" && all == nil {
		all = []nftDevice{{name: one}}
	}
	return all
}

// NFTAbsent reports whether an error says that the kernel has no nftables.
func NFTAbsent(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) ||
		errors.Is(err, unix.EINVAL)
}

// NFTRules lists the rules of a chain.
func NFTRules(c NFTChain) (all [][]NFTExpr, err error) {
	err = nft(fmt.Sprintf("list the rules of chain %s of table %s", c.Name, c.Table),
		unix.NFT_MSG_GETRULE, unix.NLM_F_DUMP, c.Family, func(a NFTAttrs) {
			// the kernel selects by table and chain, unless it is an old one
			if a.Text(unix.NFTA_RULE_TABLE) == c.Table && a.Text(unix.NFTA_RULE_CHAIN) == c.Name {
				all = append(all, expressions(a[unix.NFTA_RULE_EXPRESSIONS]))
			}
		}, nl.NewRtAttr(unix.NFTA_RULE_TABLE, nl.ZeroTerminated(c.Table)),
		nl.NewRtAttr(unix.NFTA_RULE_CHAIN, nl.ZeroTerminated(c.Name)))
	return all, err
}

func expressions(b []byte) (all []NFTExpr) {
	list, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil
	}
	for _, e := range list {
		a := attributes(e.Value)
		all = append(all, NFTExpr{Name: a.Text(unix.NFTA_EXPR_NAME),
			Attrs: a.Nested(unix.NFTA_EXPR_DATA)})
	}
	return all
}
