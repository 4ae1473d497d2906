package udp

import "errors"

// Config holds the options of a Conn. The zero value sets no option and leaves GSO on.
type Config struct {
	// ReadBuffer and WriteBuffer are the sizes of the kernel's socket buffers in bytes; 0 keeps the
	// system's default. A process with CAP_NET_ADMIN may exceed the system's upper limit.
	// Conn.Buffers returns the actual sizes.
	ReadBuffer, WriteBuffer int
	// PacketInfo fills Message.Local and Message.IfIndex.
	PacketInfo bool
	// ECN fills Message.ECN.
	ECN bool
	// Timestamps fills Message.Time.
	Timestamps bool
	// GRO lets the kernel deliver GRO packets. Every message given to ReadBatch must then have
	// buffers of MaxPayload bytes; a Reader has them. Where the kernel has no UDP_GRO it stays off:
	// see Conn.Features.
	GRO bool
	// NoGSO keeps the socket from sending GSO packets.
	NoGSO bool
	// ReusePort lets several sockets share the address (SO_REUSEPORT); the kernel spreads flows
	// over them.
	ReusePort bool
	// DontFragment sets the DF bit. A datagram that is larger than the path allows fails with
	// EMSGSIZE.
	DontFragment bool
	// Errors keeps ICMP errors for Conn.ReadErrors. ReadBatch then returns ErrQueued when there are
	// some.
	Errors bool
	// Mark is the firewall mark (SO_MARK) of the packets that the socket sends; 0 is none.
	Mark uint32

	noWait bool // WriteBatch fails with ErrFull instead of waiting
}

// ErrShortBuffer is returned by ReadBatch when Config.GRO is on and a message's buffers hold less
// than MaxPayload bytes: a GRO packet could lose its tail.
var ErrShortBuffer = errors.New("udp: message buffers are smaller than MaxPayload while GRO is on")

// ErrQueued is returned by ReadBatch when ICMP errors wait to be read with ReadErrors. It is not
// fatal: the next ReadBatch reads datagrams.
var ErrQueued = errors.New("udp: ICMP errors are queued")

// ErrFull is returned by WriteBatch of a Conn that OpenSender returned: its buffer has no space for
// the message.
var ErrFull = errors.New("udp: the write buffer is full")

// ErrFamily is returned by WriteBatch for a message that has no address, or one of an IP version
// that the socket cannot send.
var ErrFamily = errors.New("udp: the socket cannot send to an address of this family")

// Features are the kernel's mechanisms that a Conn uses.
type Features struct {
	Batch    bool   // many messages with one system call
	GSO      bool   // GSO packets are sent
	GRO      bool   // GRO packets are received
	Segments int    // the most datagrams in one GSO packet
	Why      string // why GSO is off although the kernel offers it; else empty
}

// Stats are the counters of a Conn since it was opened.
type Stats struct {
	// ReadCalls is the number of reads that returned at least one message.
	ReadCalls uint64
	// WriteCalls is the number of system calls (on systems other than Linux: WriteBatch calls) that
	// sent at least one message.
	WriteCalls uint64
	// ReadPackets is the number of messages received. A GRO packet is one.
	ReadPackets uint64
	// WritePackets is the number of messages that the kernel took, including those in GSO packets.
	WritePackets uint64
	// ReadGRO is the number of GRO packets received: messages of more than one datagram.
	ReadGRO uint64
	// WriteGSO is the number of GSO packets that the kernel took.
	WriteGSO uint64
	// Dropped is the number of datagrams that the kernel dropped because the socket's read buffer
	// was full, as of the last message received. It counts modulo 2^32, and only with PacketInfo,
	// ECN, Timestamps or GRO.
	Dropped uint64
	// Truncated is the number of messages that were longer than their buffers.
	Truncated uint64
	// ControlTruncated is the number of messages whose control data did not fit. It should stay 0.
	ControlTruncated uint64
	// GSORefused is the number of GSO packets that a route refused. Their datagrams were sent again
	// one by one.
	GSORefused uint64
	// Retried is the number of writes that were tried again after ENOBUFS, EPERM or a queued ICMP
	// error.
	Retried uint64
	// ErrorsQueued is the number of ICMP errors taken from the kernel.
	ErrorsQueued uint64
	// ErrorsDropped is how many of these errors were lost, because 64 were waiting for ReadErrors.
	ErrorsDropped uint64
}
