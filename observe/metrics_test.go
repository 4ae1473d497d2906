package observe

import (
	"strings"
	"testing"
)

func TestWriteMetrics(t *testing.T) {
	m := Metric{Name: "weir_x_total", Help: "What x did:\nboth \\ kinds.", Type: Counter}
	m.Add(3)
	m.Add(1<<53-1, "rule", "100", "why", "a\"b\\c\nd\xff")
	var b strings.Builder
	if err := WriteMetrics(&b, []Metric{m, {Name: "weir_empty", Help: "Nothing.", Type: Gauge}}); err != nil {
		t.Fatal(err)
	}
	want := `# HELP weir_x_total What x did:\nboth \\ kinds.
# TYPE weir_x_total counter
weir_x_total 3
weir_x_total{rule="100",why="a\"b\\c\nd?"} 9.007199254740991e+15
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
