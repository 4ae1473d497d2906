package firewall

// Reason is why a packet got its verdict. bpf/lib/consts.h has the same numbers, generated from
// these. A number never changes its meaning. New ones are added before numReasons. Decoder reasons
// follow at ReasonDecode + packet.Reason.
type Reason uint8

// The reasons.
const (
	ReasonRule         Reason = iota // a rule (or the state of a rule) decided
	ReasonNotIP                      // passed: not an IP packet
	ReasonEssential                  // passed: neighbour discovery, MLD, or the host's DHCP client
	ReasonLimit                      // refused: the rule's limit is reached
	ReasonStatesFull                 // refused: no space for a state
	ReasonHalfOpenFull               // refused: no space for a half-open state
	ReasonNoKey                      // refused: the packet can have no state
	ReasonTCPFlags                   // dropped: impossible TCP flags for the state
	ReasonTCPRst                     // dropped: RST outside the window
	ReasonTCPAck                     // dropped: acknowledges what was never sent, or long past
	ReasonTCPWindow                  // dropped: data outside the window
	ReasonSCTPTag                    // dropped: wrong verification tag
	ReasonICMPSeq                    // dropped: ICMP error quotes a segment outside the window
	ReasonFragUnknown                // dropped: later fragment without a known first
	ReasonFragOverlap                // dropped: overlapping fragments
	ReasonFragFirst                  // decided as the first fragment was
	ReasonLoop                       // dropped: too many jumps
	// dropped: the source is not an address of the sender, or is that of another pod
	ReasonSpoof
	ReasonMartian  // dropped: an address that cannot be on a wire
	ReasonNATPorts // dropped: no port is free to translate it to
	ReasonRate     // dropped: more than the pod's rate, or than the limit-rate of the rule
	// refused: comes in from an address of the host itself, which has as many half-open states as
	// it may have
	ReasonHalfOpenSource
	// answered by a SYN cookie: no state until the handshake is complete
	ReasonCookie
	// dropped: returns a SYN cookie, but the host's stack does not open the connection
	ReasonCookieRefused
	// dropped: repeats a SYN that got a SYN cookie less than half a second ago
	ReasonCookieRepeated
	ReasonTracksFull // refused: no free track for the rule's limit
	// dropped: no free bucket for the rule's limit-rate or its pipe, and too much for the one that
	// such packets share
	ReasonRatesFull
	ReasonPipe      // dropped: more than the pipe of the rule carries
	ReasonNoBackend // refused: the service has no pod
	// dropped: the rule's next hop cannot be reached, or cannot get such a packet
	ReasonNoHop
	ReasonHopMTU // dropped, and answered: too large for the way to the rule's next hop
	// dropped, and answered: its hop limit ends before the rule's next hop, or before the pod that
	// sent it to its own published port
	ReasonHopTTL
	ReasonNoSocket // dropped: no socket listens where the rule sends the packet
	// dropped: an IPsec policy wants encrypted, or refuses, what the translation has made of it
	ReasonIPsec
	numReasons
)

// ReasonDecode is the first of the decoder's reasons: ReasonDecode + Reason(packet.Reason).
const ReasonDecode Reason = 64
