package api

import "time"

// History is what the node has counted over time, at least an hour of it (GET /v1/history). Values
// are by sample: what was counted in the seconds that end at its time, rounded to 24 bits. A rule
// or a pod that is not listed counted nothing.
type History struct {
	Version int       `json:"version"`
	Began   time.Time `json:"began"` // of this history; another one begins with another agent
	First   uint64    `json:"first"` // number of the first sample here; ?since=N begins with N
	Times   []float64 `json:"times"` // seconds since 1970
	Seconds []float32 `json:"seconds"`
	// of all packets; a packet that is forwarded counts in both directions
	Traffic Traffic         `json:"traffic"`
	Dropped []ReasonHistory `json:"dropped"`
	Rules   []RuleHistory   `json:"rules"`
	Pods    []PodHistory    `json:"pods"`
	// of rules and pods for which there was no space, in all samples here
	Others Others `json:"others"`
}

// Traffic counts passed and dropped packets.
type Traffic struct {
	BytesIn    []float32 `json:"bytes_in"`
	BytesOut   []float32 `json:"bytes_out"`
	PacketsIn  []float32 `json:"packets_in"`
	PacketsOut []float32 `json:"packets_out"`
	Dropped    []float32 `json:"dropped"` // packets
}

// ReasonHistory is the packets that were dropped for a reason.
type ReasonHistory struct {
	Reason  string    `json:"reason"`
	Packets []float32 `json:"packets"`
}

// RuleHistory is what a rule has matched.
type RuleHistory struct {
	Number  uint16    `json:"number"`
	Text    string    `json:"text"`
	Packets []float32 `json:"packets"`
	Bytes   []float32 `json:"bytes"`
}

// PodHistory is the traffic into a pod and out of it.
type PodHistory struct {
	Container string    `json:"container"`
	IfName    string    `json:"ifname"`
	Name      string    `json:"name"`
	BytesIn   []float32 `json:"bytes_in"`
	BytesOut  []float32 `json:"bytes_out"`
	Packets   []float32 `json:"packets"`
	Dropped   []float32 `json:"dropped"` // packets
}

// Others has the sums of the rules and pods that have no separate history.
type Others struct {
	RulePackets []float32 `json:"rule_packets"`
	PodBytes    []float32 `json:"pod_bytes"`
}
