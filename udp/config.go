package udp

import "errors"

// Config says what a Conn shall do beyond sending and receiving. The zero value is a plain socket.
type Config struct {
	// ReadBuffer and WriteBuffer are the sizes of the kernel's socket buffers in bytes; 0 leaves
	// the system's default. Where the process may (CAP_NET_ADMIN), the system's upper limit does
	// not hold them down. Conn.Buffers tells what was got.
	ReadBuffer, WriteBuffer int
	// PacketInfo fills Message.Local and Message.IfIndex.
	PacketInfo bool
	// ECN fills Message.ECN.
	ECN bool
	// Timestamps fills Message.Time.
	Timestamps bool
	// GRO lets the kernel deliver super packets. Every message given to ReadBatch must then have
	// buffers of MaxPayload bytes; a Reader has them. It is taken as no where the kernel cannot:
	// see Conn.Features.
	GRO bool
	// NoGSO keeps the socket from sending super packets.
	NoGSO bool
	// ReusePort lets several sockets share the address (SO_REUSEPORT); the kernel spreads flows
	// over them.
	ReusePort bool
	// DontFragment sets the DF bit, and makes a datagram that is larger than the path allows fail
	// with EMSGSIZE.
	DontFragment bool
	// Errors keeps ICMP errors for Conn.ReadErrors, and lets ReadBatch return ErrQueued when there
	// are some.
	Errors bool
	// Mark is the firewall mark (SO_MARK) of what the socket sends; 0 is none.
	Mark uint32
}

// ErrShortBuffer is returned by ReadBatch when Config.GRO is on and a message's buffers hold less
// than MaxPayload bytes: a super packet could lose its tail in it.
var ErrShortBuffer = errors.New("udp: message buffers are smaller than MaxPayload while GRO is on")

// ErrQueued is returned by ReadBatch when ICMP errors wait to be read with ReadErrors. It is not
// fatal: go on reading.
var ErrQueued = errors.New("udp: ICMP errors are queued")

// ErrFamily is returned by WriteBatch for a message whose address the socket cannot reach because
// it is of the other IP version, or because there is none.
var ErrFamily = errors.New("udp: the socket cannot send to an address of this family")

// Features says which ways of the kernel a Conn uses.
type Features struct {
	Batch    bool   // many messages with one system call
	GSO      bool   // super packets are sent
	GRO      bool   // super packets are received
	Segments int    // datagrams in a super packet sent, at most
	Why      string // why an offload is off although the kernel knows it; else empty
}

// Stats counts what a Conn did since it was opened.
type Stats struct {
	ReadCalls, WriteCalls uint64 // calls that moved something
	ReadPackets           uint64 // messages read; a super packet is one
	WritePackets          uint64 // messages given to the kernel
	ReadSuper, WriteSuper uint64 // super packets among them
	// datagrams that the kernel dropped for want of room in the socket
	Dropped          uint64
	Truncated        uint64 // messages longer than their buffers
	ControlTruncated uint64 // messages whose control data did not fit; should stay 0
	GSORefused       uint64 // super packets refused and sent again one by one
	Retried          uint64 // writes tried again after ENOBUFS, EPERM or a queued ICMP error
	// ICMP errors taken from the kernel, and those dropped because nobody read them
	ErrorsQueued, ErrorsOut uint64
}
