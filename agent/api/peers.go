package api

import (
	"net/netip"
	"time"
)

// HostPeer begins the names of peers that are hosts of the cluster.
const HostPeer = "host:"

// AddPeer adds another node, or changes the one of that name (POST /v1/peers -> Done).
type AddPeer struct {
	Name      string         `json:"name"`
	Key       string         `json:"key"`                 // public, base64
	Preshared string         `json:"preshared,omitempty"` // base64
	Endpoints []string       `json:"endpoints,omitempty"` // HOST:PORT
	Pods      []netip.Prefix `json:"pods"`
	Keepalive int            `json:"keepalive,omitempty"` // seconds
	Plain     bool           `json:"plain,omitempty"`     // without encryption
}

// RemovePeer forgets a node (POST /v1/peers/remove -> Done).
type RemovePeer struct {
	Name string `json:"name"`
	// its ranges, too: packets for them may take other routes
	Release bool `json:"release,omitempty"`
}

// Peers are the other nodes by name (GET /v1/peers).
type Peers struct {
	Version   int    `json:"version"`
	Interface string `json:"interface"` // of the tunnel
	// this node's public key; without a tunnel there is none yet
	Key   string `json:"key,omitempty"`
	Port  uint16 `json:"port,omitempty"` // this node's
	Peers []Peer `json:"peers"`

	Held []HeldRanges `json:"held,omitempty"`
}

// HeldRanges are ranges that an encrypted peer had: they stay unreachable until they are released.
type HeldRanges struct {
	Name string         `json:"name"` // of that peer
	Pods []netip.Prefix `json:"pods"`
}

// Peer is another node and its state.
type Peer struct {
	Name       string         `json:"name"`
	Key        string         `json:"key"`
	Endpoints  []string       `json:"endpoints"`
	Pods       []netip.Prefix `json:"pods"`
	Keepalive  int            `json:"keepalive,omitempty"` // seconds
	Encrypted  bool           `json:"encrypted"`
	Preshared  bool           `json:"preshared"`
	Path       string         `json:"path,omitempty"`      // where packets go now
	Handshake  *time.Time     `json:"handshake,omitempty"` // the last one
	RTTSeconds float64        `json:"rtt_seconds,omitempty"`
	Received   uint64         `json:"received"` // bytes, encrypted
	Sent       uint64         `json:"sent"`
	Moves      uint64         `json:"moves"` // changes of path
	// packets to it that waited for a session and were dropped, as too many waited or none came
	DroppedQueueFull uint64 `json:"dropped_queue_full,omitempty"`
	DroppedNoSession uint64 `json:"dropped_no_session,omitempty"`
	Problem          string `json:"problem,omitempty"`
}

// PeerKey is the information that another node needs about this one (POST /v1/peers/key).
type PeerKey struct {
	Version int            `json:"version"`
	Key     string         `json:"key"`
	Port    uint16         `json:"port"`
	Pods    []netip.Prefix `json:"pods"`
}
