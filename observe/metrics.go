package observe

import (
	"strings"

	dto "github.com/prometheus/client_model/go"
)

// MetricType is the type of a metric.
type MetricType string

// The types in use.
const (
	Counter MetricType = "counter" // only rises, except for a restart
	Gauge   MetricType = "gauge"
)

// Metric is a family of samples with one name. Names follow prometheus.io/docs/practices/naming:
// weir_PART_THING_UNIT, base units, _total for counters. No label has an address as its value:
// an attacker could choose their number.
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

// Number is what the value of a sample is made of.
type Number interface{ int | int64 | uint64 | float64 }

// NewCounter returns a counter with a single sample.
func NewCounter[N Number](name, help string, v N) Metric {
	return Metric{Name: name, Help: help, Type: Counter, Samples: []Sample{{Value: float64(v)}}}
}

// NewGauge returns a gauge with a single sample.
func NewGauge[N Number](name, help string, v N) Metric {
	return Metric{Name: name, Help: help, Type: Gauge, Samples: []Sample{{Value: float64(v)}}}
}

// Bool returns 1 for true and 0 for false.
func Bool(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// families are metrics in the form of Prometheus' library. Metrics without samples are left out.
func families(metrics []Metric) []*dto.MetricFamily {
	var all []*dto.MetricFamily
	for i := range metrics {
		m := &metrics[i]
		if len(m.Samples) == 0 {
			continue
		}
		kind := dto.MetricType_GAUGE
		if m.Type == Counter {
			kind = dto.MetricType_COUNTER
		}
		f := &dto.MetricFamily{Name: &m.Name, Help: &m.Help, Type: &kind}
		for j := range m.Samples {
			f.Metric = append(f.Metric, m.Samples[j].in(kind))
		}
		all = append(all, f)
	}
	return all
}

func (s *Sample) in(kind dto.MetricType) *dto.Metric {
	m := &dto.Metric{}
	for i := 0; i+1 < len(s.Labels); i += 2 {
		value := strings.ToValidUTF8(s.Labels[i+1], "?")
		m.Label = append(m.Label, &dto.LabelPair{Name: &s.Labels[i], Value: &value})
	}
	if kind == dto.MetricType_COUNTER {
		m.Counter = &dto.Counter{Value: &s.Value}
	} else {
		m.Gauge = &dto.Gauge{Value: &s.Value}
	}
	return m
}
