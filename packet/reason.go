package packet

// Reason is why a packet or frame is malformed. The numbers are shared with
// the kernel engine and never change; new ones go to the end.
type Reason uint8

// The reasons. docs/design/0002-decoder.md has the order in which they are found.
const (
	ReasonNone      Reason = iota // the packet is well-formed
	ReasonShort                   // too few bytes for an IP header
	ReasonVersion                 // neither IPv4 nor IPv6, or not what the link header announces
	ReasonIHL                     // IPv4 header length below 20 bytes
	ReasonLength                  // IP length below the header's or beyond the buffer
	ReasonMapped                  // IPv4-mapped address in an IPv6 header
	ReasonJumbo                   // IPv6 jumbogram (RFC 2675), not supported
	ReasonIPOption                // IPv4 option with a bad length
	ReasonExtCount                // more than 8 extension headers
	ReasonExtOrder                // hop-by-hop header not first, or a second fragment header
	ReasonExtShort                // extension header beyond the IP length
	ReasonExtOption               // hop-by-hop option with a bad length, or more than 16 of them
	// fragment without data, or not the last and not a multiple of 8 bytes
	ReasonFragLength
	ReasonFragEnd // fragment ends past 65535
	// first fragment without the whole transport header (RFC 1858, RFC 7112)
	ReasonFragTiny
	ReasonFragOverlap // later fragment inside the TCP header (RFC 3128)
	ReasonTransport   // transport header beyond the IP length
	ReasonTCPOffset   // TCP data offset below 20 bytes or beyond the packet
	ReasonUDPLength   // UDP length below 8 bytes or beyond the packet
	// UDP-Lite checksum coverage of 1 to 7 bytes or beyond the packet
	ReasonUDPLiteCover
	ReasonLink // link-layer header too short or of an unknown kind
	ReasonVLAN // more than two VLAN tags
	numReasons
)

// reasonNames are the names used in counters, events and text.
var reasonNames = [numReasons]string{
	ReasonNone:         "none",
	ReasonShort:        "short",
	ReasonVersion:      "bad-version",
	ReasonIHL:          "bad-ihl",
	ReasonLength:       "bad-length",
	ReasonMapped:       "mapped-address",
	ReasonJumbo:        "jumbo",
	ReasonIPOption:     "bad-ip-option",
	ReasonExtCount:     "ext-too-many",
	ReasonExtOrder:     "ext-order",
	ReasonExtShort:     "ext-short",
	ReasonExtOption:    "bad-ext-option",
	ReasonFragLength:   "frag-length",
	ReasonFragEnd:      "frag-past-end",
	ReasonFragTiny:     "frag-tiny",
	ReasonFragOverlap:  "frag-overlap",
	ReasonTransport:    "short-transport",
	ReasonTCPOffset:    "bad-tcp-offset",
	ReasonUDPLength:    "bad-udp-length",
	ReasonUDPLiteCover: "bad-udplite-coverage",
	ReasonLink:         "bad-link",
	ReasonVLAN:         "vlan-too-many",
}

// NumReasons is one more than the highest Reason, the size for an array of counters.
const NumReasons = int(numReasons)

// String returns the short stable name of the reason, such as "bad-ihl".
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return "unknown"
}

// Err returns nil for ReasonNone, else a DecodeError.
func (r Reason) Err() error {
	if r == ReasonNone {
		return nil
	}
	return DecodeError{Reason: r}
}

// DecodeError is a Reason as an error. Compare with errors.Is:
//
//	errors.Is(err, packet.DecodeError{Reason: packet.ReasonJumbo})
type DecodeError struct{ Reason Reason }

// Error returns "malformed packet: " and the name of the reason.
func (e DecodeError) Error() string { return "malformed packet: " + e.Reason.String() }
