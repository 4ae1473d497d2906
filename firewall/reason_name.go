package firewall

import (
	"fmt"

	"github.com/weirnet/weir/packet"
)

// reasonNames are the words of docs/design/0003-evaluation.md.
var reasonNames = [...]string{
	ReasonRule:         "rule",
	ReasonNotIP:        "not-ip",
	ReasonEssential:    "essential",
	ReasonLimit:        "limit",
	ReasonStatesFull:   "states-full",
	ReasonHalfOpenFull: "half-open-full",
	ReasonNoKey:        "no-key",
	ReasonTCPFlags:     "tcp-flags",
	ReasonTCPRst:       "tcp-rst",
	ReasonTCPAck:       "tcp-ack",
	ReasonTCPWindow:    "tcp-window",
	ReasonSCTPTag:      "sctp-vtag",
	ReasonICMPSeq:      "icmp-seq",
	ReasonFragUnknown:  "frag-unknown",
	ReasonFragOverlap:  "frag-overlap",
	ReasonFragFirst:    "frag-first",
	ReasonLoop:         "loop",
	ReasonSpoof:        "spoof",
	ReasonMartian:      "martian",
	ReasonNATPorts:     "nat-ports",
	ReasonRate:         "rate",

	ReasonHalfOpenSource: "half-open-source",
	ReasonCookie:         "cookie",
	ReasonCookieRefused:  "cookie-refused",
	ReasonCookieRepeated: "cookie-repeated",
	ReasonTracksFull:     "tracks-full",
	ReasonRatesFull:      "rates-full",
	ReasonPipe:           "pipe",
	ReasonNoBackend:      "no-backend",
	ReasonNoHop:          "no-hop",
	ReasonHopMTU:         "hop-mtu",
	ReasonHopTTL:         "hop-ttl",
	ReasonNoSocket:       "no-socket",
	ReasonIPsec:          "ipsec",
}

// String returns the reason's name, the same in every listing, event and metric. Names of decoder
// reasons begin with decode-.
func (r Reason) String() string {
	if r >= ReasonDecode {
		return "decode-" + packet.Reason(r-ReasonDecode).String()
	}
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason-%d", uint8(r))
}
