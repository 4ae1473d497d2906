package api

import (
	"net/netip"
	"time"
)

// Attach asks for the network of a container (POST /v1/pods -> Pod). What is left out is chosen.
type Attach struct {
	// the runtime's name of the network, which its garbage collection is about
	Network   string       `json:"network,omitempty"`
	Container string       `json:"container"`
	Name      string       `json:"name,omitempty"`
	Netns     string       `json:"netns"`
	IfName    string       `json:"ifname,omitempty"`
	Addrs     []netip.Addr `json:"addrs,omitempty"`
	// the addresses come from another IPAM plugin
	ExternalIPAM bool `json:"extern,omitempty"`
	// the runtime moves and configures Pod.InnerIf itself
	Moved   bool              `json:"moved,omitempty"`
	MAC     string            `json:"mac,omitempty"`
	MTU     int               `json:"mtu,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Publish []Publish         `json:"publish,omitempty"`
	Rates   Rates             `json:"rates"`
}

// Publish gives a port of the host to a pod.
type Publish struct {
	Proto    string     `json:"proto"`         // tcp, udp or sctp
	Host     netip.Addr `json:"host,omitzero"` // zero: every address of the host
	HostPort uint16     `json:"host_port"`
	Port     uint16     `json:"port"`
}

// Rates are limits in bits per second, bursts in bytes, seen from the pod; 0 means none.
type Rates struct {
	In       uint64 `json:"in,omitempty"`
	Out      uint64 `json:"out,omitempty"`
	InBurst  uint64 `json:"in_burst,omitempty"`
	OutBurst uint64 `json:"out_burst,omitempty"`
}

// Detach asks to take a container's network away (POST /v1/pods/detach -> Done).
type Detach struct {
	Container string `json:"container"` // or the pod's name
	IfName    string `json:"ifname,omitempty"`
	// do not wait until the kernel has removed the interface
	NoWait bool `json:"hurry,omitempty"`
}

// Check asks to compare a container's network with what Attach made (POST /v1/pods/check -> Done).
type Check struct {
	Container string `json:"container"` // or the pod's name
	IfName    string `json:"ifname,omitempty"`
	// the addresses that the runtime expects; none: not compared
	Addrs []netip.Addr `json:"addrs,omitempty"`
}

// GC asks to detach every pod of a network that is not named (POST /v1/pods/gc -> Done).
type GC struct {
	Network     string   `json:"network"`
	Attachments []string `json:"attachments"` // "CONTAINER/IFNAME"
}

// Pods are the node's pods, oldest first (GET /v1/pods).
type Pods struct {
	Version int   `json:"version"`
	Pods    []Pod `json:"pods"`
}

// Pod is a container's network as it stands.
type Pod struct {
	Version   int    `json:"version,omitempty"` // in an answer of its own
	Network   string `json:"network,omitempty"` // as in Attach
	Container string `json:"container"`
	Name      string `json:"name"`
	Netns     string `json:"netns"`
	IfName    string `json:"ifname"`
	HostIf    string `json:"host_if"`
	Index     uint32 `json:"index"` // of HostIf
	// where the inner end is until the runtime moves it
	InnerIf  string            `json:"inner_if,omitempty"`
	Addrs    []netip.Addr      `json:"addrs"`
	Gateways []netip.Addr      `json:"gateways"`
	MAC      string            `json:"mac"`
	HostMAC  string            `json:"host_mac"`
	MTU      int               `json:"mtu"`
	Labels   map[string]string `json:"labels,omitempty"`
	Publish  []Publish         `json:"publish,omitempty"`
	Rates    Rates             `json:"rates"`
	Created  time.Time         `json:"created"`
	// Packets, bytes and drops, into the pod and out of it.
	Packets [2]uint64 `json:"packets"`
	Bytes   [2]uint64 `json:"bytes"`
	Drops   [2]uint64 `json:"drops"`
}
