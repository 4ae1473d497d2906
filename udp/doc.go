// Package udp moves UDP datagrams in batches, without one allocation.
//
// A Conn reads and writes many messages with one call:
//
//	conn, err := udp.Listen("udp", netip.MustParseAddrPort("[::]:4242"), udp.Config{PacketInfo: true})
//	...
//	n, err := conn.ReadBatch(msgs)   // blocks until at least one message is there
//	n, err  = conn.WriteBatch(msgs)  // blocks until all are handed to the kernel
//
// The messages and their buffers belong to the caller, before and after the call; the package keeps
// no reference to them. Headers, I/O vectors, socket addresses and control data live in rings that
// are laid out once, grow when a larger batch comes, and are pooled by the Conn, so that several
// goroutines may read and write the same Conn at once. Deadlines, Close and the Go poller work as
// with a net.UDPConn.
//
// # Super packets
//
// On Linux, consecutive messages of a WriteBatch that have the same destination, the same source
// and the same size leave as one super packet (UDP_SEGMENT, generic segmentation offload): the
// kernel walks its stack once for dozens of datagrams. The last message of such a run may be
// shorter. Buffers are gathered by I/O vectors, never copied. Nothing has to be switched on, and
// the datagrams on the wire are the same. Where a route refuses (EIO or EINVAL, seen per device,
// per path and per kernel), the datagrams are sent again one by one and the route is remembered for
// ten minutes; Config.NoGSO and Conn.SetGSO switch it off altogether.
//
// Receiving super packets (UDP_GRO) changes what a buffer must hold, hence it is asked for with
// Config.GRO. Then every message given to ReadBatch needs buffers of MaxPayload bytes, and one
// whose Segment is not zero carries several datagrams; Message.Segments walks them in place. A
// Reader does this for its owner: it holds slots of the right size, and its Read returns single
// datagrams that point into them. Nothing is copied.
//
// # Other facts about a datagram
//
// Config.PacketInfo fills Message.Local and Message.IfIndex on receipt. Giving the same values back
// in a reply makes it leave from the address that the peer spoke to, on hosts with many. Config.ECN
// and Config.Timestamps fill Message.ECN and Message.Time. Config.Errors makes ICMP errors readable
// with Conn.ReadErrors.
//
// # Systems
//
// Linux 5.0 and later use sendmmsg(2), recvmmsg(2) and the offloads; what a running kernel lacks is
// probed at Listen and told by Conn.Features. On other systems the same calls work, one datagram at
// a time; Config fields that the system cannot serve make Listen fail with errors.ErrUnsupported.
package udp
