package api

import "time"

// Captured is a frame as it came to a hook, and its verdict.
type Captured struct {
	Version int       `json:"version"`
	Time    time.Time `json:"time"`
	Hook    string    `json:"hook"` // in or out
	Recv    string    `json:"recv,omitempty"`
	Xmit    string    `json:"xmit,omitempty"`
	Verdict string    `json:"verdict"`
	Rule    uint16    `json:"rule"`
	Text    string    `json:"text,omitempty"` // of the rule
	Reason  string    `json:"reason"`
	State   string    `json:"state,omitempty"`
	Length  int       `json:"length"` // of the frame
	Link    string    `json:"link"`   // ethernet or raw
	Data    []byte    `json:"data"`   // its first bytes
	// frames that were left out before this one; without a verdict nothing else is set
	Missed uint64 `json:"missed,omitempty"`
}
