// Package setup writes a first rule file for a host from what is known of it. It is pure: package
// agent/hostfacts finds the facts out.
package setup

import (
	"net/netip"

	"github.com/weirnet/weir/agent/api"
)

// Facts are what the rules for a host are made of.
type Facts struct {
	// the ssh connection in which the owner asks, nil when there is none
	Session    *api.Session `json:"session,omitempty"`
	Interfaces []Interface  `json:"interfaces"`
	Services   []Listener   `json:"services"`
	// the first port of net.ipv4.ip_local_port_range: UDP sockets from there on are clients
	FirstLocalPort uint16 `json:"first_local_port"`
	// the UDP port of the tunnel to other nodes, which the agent opens
	TunnelPort uint16 `json:"tunnel_port"`
	Forwards   bool   `json:"forwards"` // the kernel forwards packets
	// other firewalls that are active, for people: "nftables: table inet filter"
	Firewalls []string `json:"firewalls"`
}

// Interface is a network interface.
type Interface struct {
	Name     string         `json:"name"`
	Networks []netip.Prefix `json:"networks"`         // its addresses with the lengths of their networks
	Maker    string         `json:"maker,omitempty"`  // the program that made it for its containers
	Bridge   string         `json:"bridge,omitempty"` // the bridge that it is a port of
	Guests   bool           `json:"guests"`           // that bridge also has ports of other machines
	Guarded  bool           `json:"guarded"`
}

// Listener is a socket that waits for packets.
type Listener struct {
	Proto   string     `json:"proto"`   // tcp, udp or sctp
	Address netip.Addr `json:"address"` // unspecified for all addresses
	// of an IPv6 socket on all addresses: it takes IPv4, too
	Both    bool   `json:"both"`
	Port    uint16 `json:"port"`
	Program string `json:"program,omitempty"` // "" if it is not known
}
