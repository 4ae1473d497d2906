package watch

import (
	"fmt"
	"net/netip"
	"time"
)

// Settings are the section [observe].
type Settings struct {
	// History is how far back the events of the past are kept; 0 keeps none.
	History time.Duration
	// Metrics is the address on which metrics are served beside the socket, "" for none.
	Metrics string
}

// DefaultSettings is the section when nothing is set.
func DefaultSettings() Settings { return Settings{History: 5 * time.Minute} }

// File is the section as it is written. Pointers are nil for what was not set.
type File struct {
	History *string `toml:"history"`
	Metrics string  `toml:"metrics"`
}

// maxHistory bounds how long events are kept. Their number is bounded, too.
const maxHistory = 24 * time.Hour

// Apply lays the section over its defaults.
func (f *File) Apply(s *Settings) error {
	if f.History != nil {
		d, err := time.ParseDuration(*f.History)
		if err != nil || d < 0 || d > maxHistory {
			return fmt.Errorf(`observe.history: %q is not a duration from "0s" to "24h"`,
				*f.History)
		}
		s.History = d
	}
	if s.Metrics = f.Metrics; s.Metrics != "" {
		if _, err := netip.ParseAddrPort(s.Metrics); err != nil {
			return fmt.Errorf(`observe.metrics: %q is not an address with a port like "127.0.0.1:9642"`,
				s.Metrics)
		}
	}
	return nil
}
