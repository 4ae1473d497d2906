package nl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// LocalRoutes lists the routes of the table local, in the namespace of the calling thread. They
// make the host take packets at prefixes which it does not have as addresses (ip route add local).
// The kernel's own, of addresses and the loopback, are left out. A request may take so long. There
// may be a million routes in other tables: the kernel itself selects the table.
func LocalRoutes(atMost time.Duration) (all []Route, err error) {
	s, err := nl.GetNetlinkSocketAt(netns.None(), netns.None(), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer s.Close()
	limit := unix.NsecToTimeval(int64(atMost))
	if err := errors.Join(s.SetSendTimeout(&limit), s.SetReceiveTimeout(&limit),
		unix.SetsockoptInt(s.GetFd(), unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK,
			1)); err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	sockets := map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: {Socket: s}}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		answer, err := read("list the local routes", func() ([][]byte, error) {
			r := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
			r.Sockets = sockets
			r.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: family, Table: unix.RT_TABLE_LOCAL}})
			return r.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWROUTE)
		})
		// without such a table, or without the family
		if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
			return nil, err
		}
		for _, m := range answer {
			r, is, err := localRoute(m, family)
			if err != nil {
				return nil, fmt.Errorf("list the local routes: %w", err)
			}
			if is {
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// localRoute reads a message about a route, and reports whether LocalRoutes lists it.
func localRoute(m []byte, family uint8) (r Route, is bool, err error) {
	if len(m) < unix.SizeofRtMsg {
		return r, false, unix.EINVAL
	}
	h := nl.DeserializeRtMsg(m)
	if h.Family != family || !madeLocal(int(h.Table), int(h.Type), int(h.Protocol)) {
		return r, false, nil
	}
	list, err := nl.ParseRouteAttr(m[unix.SizeofRtMsg:])
	if err != nil {
		return r, false, err
	}
	dst := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	r = Route{Table: int(h.Table), Type: int(h.Type), Proto: int(h.Protocol)}
	for _, a := range list {
		switch a.Attr.Type & nlaType {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(a.Value)
		case unix.RTA_OIF:
			if len(a.Value) == 4 {
				r.Link = int(binary.NativeEndian.Uint32(a.Value))
			}
		}
	}
	r.Dst = netip.PrefixFrom(dst, int(h.Dst_len))
	return r, r.Dst.IsValid(), nil
}

// madeLocal reports whether a route leads to the host and is not the kernel's own.
func madeLocal(table, kind, proto int) bool {
	return table == unix.RT_TABLE_LOCAL && kind == unix.RTN_LOCAL && proto != unix.RTPROT_KERNEL
}
