package api

import (
	"net/netip"

	"github.com/weirnet/weir/packet"
)

// AddService asks to add a service (POST /v1/services -> Services, with this one).
type AddService struct {
	Name  string         `json:"name"`
	Proto packet.Proto   `json:"proto,omitempty"` // TCP if 0
	At    netip.AddrPort `json:"at"`
	Table string         `json:"table"`          // KEY=VALUE, the label of its pods
	Port  uint16         `json:"port,omitempty"` // of the pods; that of At if 0
}

// RemoveService asks to remove a service (POST /v1/services/remove -> Done).
type RemoveService struct {
	Name string `json:"name"`
}

// Services are the services of the node, in order of name (GET /v1/services).
type Services struct {
	Version  int       `json:"version"`
	Services []Service `json:"services"`
}

// Service is an address and a port that lead to the pods of a label.
type Service struct {
	Name  string         `json:"name"`
	Proto packet.Proto   `json:"proto"`
	At    netip.AddrPort `json:"at"`
	Table string         `json:"table"`
	Port  uint16         `json:"port"`
	Pods  []ServicePod   `json:"pods"`
}

// ServicePod is a pod of a service, with its TCP connections since it came: those that began, those
// that it accepted, and those that it refused.
type ServicePod struct {
	Pod      string     `json:"pod"`
	Addr     netip.Addr `json:"address"`
	State    string     `json:"state"` // "ok", "passed-over" or "probing"
	Begun    uint64     `json:"begun"`
	Accepted uint64     `json:"accepted"`
	Refused  uint64     `json:"refused"`
}
