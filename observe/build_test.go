package observe

import (
	"runtime"
	"testing"
)

// TestBuildInfo: the labels name what is known, and a commit that the source differs from says so.
func TestBuildInfo(t *testing.T) {
	for _, c := range []struct {
		build    Build
		revision string
	}{
		{Build{Version: "1.2.3", Revision: "0123abcd"}, "0123abcd"},
		{Build{Version: "1.2.3", Revision: "0123abcd", Modified: true}, "0123abcd-modified"},
		{Build{Version: "1.2.3"}, "unknown"},
	} {
		_, got := scrape(t, MetricsHandler(func() ([]Metric, error) {
			return []Metric{c.build.Metric()}, nil
		}))
		want := "# HELP weir_build_info 1; the labels say what the program was built from.\n" +
			"# TYPE weir_build_info gauge\nweir_build_info{version=\"1.2.3\",revision=\"" +
			c.revision + "\",goversion=\"" + runtime.Version() + "\"} 1\n"
		if got != want {
			t.Errorf("%+v: got\n%swant\n%s", c.build, got, want)
		}
	}
}
