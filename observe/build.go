package observe

import (
	"cmp"
	"runtime"
)

// Build describes the source and the version of Go from which a program was built.
type Build struct {
	Version  string
	Revision string // the commit, or "" when it is not known
	Modified bool   // the source had changes since that commit
}

// Metric is weir_build_info, with the labels of Prometheus' own programs: a query joins it with
// others to compare versions.
func (b Build) Metric() Metric {
	m := Metric{Name: "weir_build_info", Type: Gauge,
		Help: "1; the labels say what the program was built from."}
	revision := cmp.Or(b.Revision, "unknown")
	if b.Modified {
		revision += "-modified"
	}
	m.Add(1, "version", b.Version, "revision", revision, "goversion", runtime.Version())
	return m
}
