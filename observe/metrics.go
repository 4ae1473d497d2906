package observe

import (
	"io"
	"strconv"
	"strings"
)

// MetricType is what a metric counts.
type MetricType string

// The types in use.
const (
	Counter MetricType = "counter" // only rises, but for a restart
	Gauge   MetricType = "gauge"
)

// Metric is a family of samples with one name. Names follow prometheus.io/docs/practices/naming: weir_PART_THING_UNIT, base
// units, _total for counters. No label ever holds an address: their number is the attacker's choice.
type Metric struct {
	Name, Help string
	Type       MetricType
	Samples    []Sample
}

// Sample is one value. Labels are pairs of a name and a value.
type Sample struct {
	Labels []string
	Value  float64
}

// Add appends a sample; labels are name, value, name, value.
func (m *Metric) Add(value float64, labels ...string) {
	m.Samples = append(m.Samples, Sample{labels, value})
}

// One is a metric with a single sample.
func One(t MetricType, name, help string, v float64) Metric {
	return Metric{Name: name, Help: help, Type: t, Samples: []Sample{{Value: v}}}
}

// ContentType is that of WriteMetrics.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// WriteMetrics writes metrics in the text format of Prometheus, version 0.0.4. Metrics without samples are left out.
func WriteMetrics(w io.Writer, metrics []Metric) error {
	var b []byte
	for i := range metrics {
		m := &metrics[i]
		if len(m.Samples) == 0 {
			continue
		}
		b = append(append(append(append(b, "# HELP "...), m.Name...), ' '), helpEscape.Replace(m.Help)...)
		b = append(append(append(append(b, "\n# TYPE "...), m.Name...), ' '), m.Type...)
		b = append(b, '\n')
		for _, s := range m.Samples {
			b = append(b, m.Name...)
			for j := 0; j+1 < len(s.Labels); j += 2 {
				b = append(b, [...]byte{'{', ','}[min(j, 1)])
				b = append(append(b, s.Labels[j]...), `="`...)
				b = append(append(b, labelEscape.Replace(strings.ToValidUTF8(s.Labels[j+1], "?"))...), '"')
			}
			if len(s.Labels) > 1 {
				b = append(b, '}')
			}
			b = append(strconv.AppendFloat(append(b, ' '), s.Value, 'g', -1, 64), '\n')
		}
	}
	_, err := w.Write(b)
	return err
}

var (
	helpEscape  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)
