package api

import (
	"net/netip"
	"time"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// Detach asks to take a container's network away (POST /v1/pods/detach -> Done).
type Detach struct {
	Container string `json:"container"`
	IfName    string `json:"ifname,omitempty"` // "": eth0
	// do not wait until the kernel has removed the interface
	NoWait bool `json:"no_wait,omitempty"`
}

// Label asks to change the labels of a container (POST /v1/pods/label -> Pods).
type Label struct {
	Container string            `json:"container"`        // or the pod's name
	IfName    string            `json:"ifname,omitempty"` // "": all its interfaces
	Set       map[string]string `json:"set,omitempty"`
	Remove    []string          `json:"remove,omitempty"` // keys
}

// Check asks to compare a container's network with what was made (POST /v1/pods/check -> Done).
type Check struct {
	Container string `json:"container"`
	IfName    string `json:"ifname,omitempty"` // "": eth0
	// the addresses that the runtime expects; none: not compared
	Addrs []netip.Addr `json:"addrs,omitempty"`
}

// Attached asks whether there is anything of a container's network (POST /v1/pods/attached ->
// IsAttached).
type Attached struct {
	Container string `json:"container"`
	IfName    string `json:"ifname"`
}

// IsAttached is the answer to Attached.
type IsAttached struct {
	Version  int  `json:"version"`
	Attached bool `json:"attached"` // also while it is being made or removed
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
	Network   string `json:"network,omitempty"` // as in pod.Spec
	Container string `json:"container"`
	Name      string `json:"name"`
	Netns     string `json:"netns"`
	IfName    string `json:"ifname"`
	HostIf    string `json:"host_if"`
	Index     uint32 `json:"index"` // of HostIf
	Link      string `json:"link"`  // kind of the pair: "veth" or "netkit"
	// where the inner end is until the runtime moves it
	InnerIf  string       `json:"inner_if,omitempty"`
	Addrs    []netip.Addr `json:"addrs"`
	Gateways []netip.Addr `json:"gateways"`
	// Nameservers are what the pod may ask for names, when it is attached.
	Nameservers []netip.Addr      `json:"nameservers,omitempty"`
	MAC         string            `json:"mac"`
	HostMAC     string            `json:"host_mac"`
	MTU         int               `json:"mtu"`
	Labels      map[string]string `json:"labels,omitempty"`
	Aliases     []string          `json:"aliases,omitempty"` // as in pod.Spec
	Publish     []pod.Publish     `json:"publish,omitempty"`
	Rates       forward.Rates     `json:"rates"`
	Created     time.Time         `json:"created"`
	// Packets, bytes and drops, into the pod and out of it.
	Packets [2]uint64 `json:"packets"`
	Bytes   [2]uint64 `json:"bytes"`
	Drops   [2]uint64 `json:"drops"`
}
