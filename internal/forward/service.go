package forward

import (
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// Service is an address and a port that lead to several pods: each flow to one of them.
type Service struct {
	Proto packet.Proto // TCP or UDP
	// At is an address that the host has, and only for services.
	At netip.AddrPort
	// Backends are the pods; without any that gets flows the service refuses them.
	Backends []Backend
	// Turn, when it changes, has the flows divided again, by another secret.
	Turn uint64
}

// MaxBackends is how many pods a Service can have.
const MaxBackends = 128

// MaxAllBackends is how many pods all Services can have together; one of two Services counts twice.
const MaxAllBackends = 4096

// Backend is a pod of a Service.
type Backend struct {
	To netip.AddrPort
	// Out: it keeps the flows that it has and gets no others.
	Out bool
	// ProbeEnd, if not 0: it gets flows until it has begun so many TCP connections in all.
	ProbeEnd uint64
}

// ServiceKey names a Service.
type ServiceKey struct {
	Proto packet.Proto
	At    netip.AddrPort
}

// Key returns the name of s.
func (s *Service) Key() ServiceKey { return ServiceKey{s.Proto, s.At} }

// BackendCounters count the TCP connections of a backend: those that began, those that it accepted,
// and those that it refused. A client that uses its port again at once does not count again.
type BackendCounters struct {
	Begun, Accepted, Refused uint64
	// Drawn are those accepted that were the first of their part of the flows, of which there are
	// FlowParts, since the flows were divided last. Each is a draw at random among the backends,
	// whatever its client has found out.
	Drawn uint64
}

// FlowParts is in how many parts the flows of a Service are divided.
const FlowParts = 256
