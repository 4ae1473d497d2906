package api

import "net/netip"

// FlowQuestion names a flow, as an event does (POST /v1/flow -> Flow).
type FlowQuestion struct {
	Proto string         `json:"proto"`
	Src   netip.AddrPort `json:"src"` // who began; port 0 where there is none
	Dst   netip.AddrPort `json:"dst"`
	// where its packets come by: in or out, and the names of the interfaces
	Hook string `json:"hook,omitempty"`
	Recv string `json:"recv,omitempty"`
	Xmit string `json:"xmit,omitempty"`
}

// Flow is the node's information about a flow.
type Flow struct {
	Version int     `json:"version"`
	Src     FlowEnd `json:"src"`
	Dst     FlowEnd `json:"dst"`
	// its live states, translated or not: one in each engine at most, and those that use its
	// addresses on the wire
	States []State `json:"states"`
	// what would happen to its first packet now, or Unknown: why that is not known
	Why     *Explanation `json:"why,omitempty"`
	Unknown string       `json:"unknown,omitempty"`
}

// FlowEnd is the node's information about an address.
type FlowEnd struct {
	Addr string `json:"addr"`
	Port uint16 `json:"port,omitempty"`
	// Kind is host for this host, pod for one of its containers, peer for a container of another
	// node, and "" for others.
	Kind   string            `json:"kind,omitempty"`
	Name   string            `json:"name,omitempty"` // of the pod or the peer
	Labels map[string]string `json:"labels,omitempty"`
	Table  string            `json:"table,omitempty"` // the first table that has the address
	Peer   *Peer             `json:"peer,omitempty"`
}
