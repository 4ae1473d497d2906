package api

// Cluster is how a host and its cluster are doing.
type Cluster struct {
	Name string `json:"name"` // of this host
	// the weir-store that is connected, or was last
	Store     string `json:"store,omitempty"`
	Connected bool   `json:"connected"`
	// why it is not connected, or cannot be
	StoreError string `json:"store_error,omitempty"`
	// for how long the store was not heard; none: not in this run
	SilentSeconds *float64 `json:"silent_seconds,omitempty"`
	// hundredths of the space of the store; none: not known
	StorePercent int    `json:"store_percent,omitempty"`
	Revision     int64  `json:"revision"` // of the copy
	Hosts        int    `json:"hosts"`
	Version      string `json:"version"` // of the rules, in force
	Trial        bool   `json:"trial,omitempty"`
	// a version that is not in force, and why
	Refused string `json:"refused,omitempty"`
	Why     string `json:"why,omitempty"`
	// keys that the store lost and that the host still enforces
	Held        int     `json:"held,omitempty"`
	HeldSeconds float64 `json:"held_seconds,omitempty"`
	// values of the store that failed a check
	Claims uint64 `json:"claims,omitempty"`
}
