// Package udp sends and receives UDP datagrams in batches, without allocations.
//
// A Conn reads and writes many messages with one call:
//
//	local := netip.MustParseAddrPort("[::]:4242")
//	conn, err := udp.Listen("udp", local, udp.Config{PacketInfo: true})
//	...
//	n, err := conn.ReadBatch(msgs)   // blocks until at least one message is there
//	n, err  = conn.WriteBatch(msgs)  // blocks until the kernel has them all
//
// The messages and their buffers belong to the caller, before and after the call; the package keeps
// no reference to them. Headers, I/O vectors, socket addresses and control data are kept in rings,
// which are allocated once, grow for a larger batch, and are pooled by the Conn. So several
// goroutines may read and write the same Conn at once. Deadlines and Close work as with a
// net.UDPConn.
//
// # GSO and GRO packets
//
// On Linux, consecutive messages of a WriteBatch that have the same destination, the same source
// and the same size leave as one GSO packet (UDP_SEGMENT, generic segmentation offload). The
// kernel's network stack runs once for dozens of datagrams. The last message of such a run may be
// shorter. I/O vectors gather the buffers, nothing is copied, and the datagrams on the wire are the
// same. GSO is on by default; Config.NoGSO switches it off. A route may refuse GSO packets (EIO or
// EINVAL, which depend on the device, the path and the kernel). Then the Conn sends the datagrams
// again one by one and remembers the route for ten minutes.
//
// Config.GRO lets the kernel coalesce received datagrams into GRO packets (UDP_GRO). It is off by
// default, because it changes what a buffer must hold: every message given to ReadBatch then needs
// buffers of MaxPayload bytes. A message whose Segment is not zero carries several datagrams;
// Message.Segments iterates over them in place. A Reader has slots of the right size and returns
// single datagrams that point into them, without a copy.
//
// Conn.OpenSender opens a second socket at the same address (SO_REUSEPORT), only for sending, with
// its own buffer.
//
// # Packet information
//
// Config.PacketInfo fills Message.Local and Message.IfIndex on receipt. On a host with several
// addresses, a reply with the same values leaves from the address that the peer sent to.
// Config.ECN and Config.Timestamps fill Message.ECN and Message.Time. With Config.Errors,
// Conn.ReadErrors returns ICMP errors.
//
// # Systems
//
// Linux 5.0 and later use sendmmsg(2), recvmmsg(2) and the offloads. Listen probes what the running
// kernel lacks, and Conn.Features reports it. On other systems the same calls work, one datagram at
// a time; Config fields that the system does not support make Listen fail with
// errors.ErrUnsupported.
package udp
