package proxy

import "sync/atomic"

// Stats are the counters of a Server.
type Stats struct {
	Accepted         uint64 // clients so far
	Clients          uint64 // clients now
	Connects         uint64 // CONNECT requests, of SOCKS5 and HTTP
	Associations     uint64 // UDP ASSOCIATE requests
	Requests         uint64 // plain HTTP requests
	TurnedAway       uint64 // clients beyond MaxClients
	BadHandshakes    uint64 // clients whose handshake failed
	Denied           uint64 // wrong passwords, and SOCKS5 clients that offer no usable method
	Failed           uint64 // dials that failed
	IdleClosed       uint64 // connections closed after IdleTimeout
	DatagramsDropped uint64 // datagrams not passed on
	// BytesRelayed counts the bytes of tunnels, of plain HTTP with its headers, and of the payloads
	// of datagrams, in both directions.
	BytesRelayed uint64
}

type counters struct {
	accepted, clients, connects, associations, requests   atomic.Uint64
	turnedAway, badHandshakes, denied, failed, idleClosed atomic.Uint64
	datagramsDropped, bytesRelayed                        atomic.Uint64
}

// Stats returns the counters.
func (s *Server) Stats() Stats {
	c := &s.stats
	return Stats{
		Accepted: c.accepted.Load(), Clients: c.clients.Load(),
		Connects: c.connects.Load(), Associations: c.associations.Load(),
		Requests: c.requests.Load(), TurnedAway: c.turnedAway.Load(),
		BadHandshakes: c.badHandshakes.Load(), Denied: c.denied.Load(),
		Failed: c.failed.Load(), IdleClosed: c.idleClosed.Load(),
		DatagramsDropped: c.datagramsDropped.Load(), BytesRelayed: c.bytesRelayed.Load(),
	}
}
