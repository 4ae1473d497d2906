package race

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/eyeballs/dns"
	"github.com/weirnet/weir/eyeballs/svcb"
)

// The numbers of RFC 8305 section 8 and HEv3 section 9.
const (
	// ResolutionDelay is how long a race waits for the preferred family and for
	// service records once it knows an address.
	ResolutionDelay = 50 * time.Millisecond
	// AttemptDelay is the time between two attempts if no RTT is known.
	AttemptDelay = 250 * time.Millisecond
	// MinAttemptDelay is the lower bound that RFC 8305 section 5 sets.
	MinAttemptDelay = 10 * time.Millisecond
	// MaxAttemptDelay is the upper bound.
	MaxAttemptDelay = 2 * time.Second
)

// Limits against hostile answers.
const (
	// MaxEndpoints bounds the list of a race.
	MaxEndpoints = 512
	// MaxRunning bounds the attempts that run at a time: each is a descriptor and its SYNs.
	MaxRunning = 32
	// MaxNames bounds the names that one race looks up, the first one included.
	MaxNames = 8
)

// Config describes one race. The zero value of a duration or count means the default.
type Config struct {
	// Name and Port are what the caller wants to reach.
	Name string
	Port uint16
	// ServiceName is the owner of the HTTPS records if it is not Name
	// (RFC 9460 section 9.1: _8443._https.example.com).
	ServiceName string
	// Types are the questions that are useful on this host.
	Types dns.Type
	// PreferV4 makes IPv4 the preferred family, whose answer the race waits for.
	PreferV4 bool

	ResolutionDelay  time.Duration
	AttemptDelay     time.Duration
	FirstFamilyCount int

	// Limit is when the caller gives up, counted from the beginning; 0 means never. Attempts are
	// spaced so that all known addresses get their turn before it, unless MaxRunning are silent.
	Limit time.Duration
	// MaxRunning is how many attempts may run at a time. The next one then waits until one fails.
	MaxRunning int

	// Protocols are the ALPN ids that the caller speaks. A service that speaks none of them is
	// never contacted.
	Protocols []string

	// NoV4 means that this host has no route for IPv4: it reaches IPv4 addresses through Prefixes
	// or not at all.
	NoV4 bool
	// Prefixes are the NAT64 prefixes known from the start.
	Prefixes []netip.Prefix

	// Sort orders endpoints, the most preferred first (RFC 6724 section 6, history). Nil keeps the
	// order of the answers.
	Sort func([]Endpoint)
	// Delay returns the Connection Attempt Delay after an attempt to the address, 0 for the
	// default. It may be nil.
	Delay func(netip.Addr) time.Duration
	// Shuffle puts services in random order before they are sorted by priority. Nil keeps the
	// order of the answer.
	Shuffle func([]svcb.Record)
}
