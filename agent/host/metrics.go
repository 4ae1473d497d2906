package host

import "github.com/weirnet/weir/observe"

// Metrics are about the guarded interfaces.
func (h *Hooks) Metrics() ([]observe.Metric, error) {
	h.mu.Lock()
	guarded := len(h.attached)
	h.mu.Unlock()
	return []observe.Metric{observe.NewGauge("weir_interfaces_guarded", "Interfaces with hooks.",
		guarded)}, nil
}
