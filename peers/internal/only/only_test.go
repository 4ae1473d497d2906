package only

import (
	"strings"
	"testing"
)

func TestParts(t *testing.T) {
	for chosen, want := range map[string]string{"": "udp tcp http", "tcp": "tcp",
		"http,udp": "udp http"} {
		run, err := Parts(chosen, "udp", "tcp", "http")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, part := range []string{"udp", "tcp", "http"} {
			if run(part) {
				got = append(got, part)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q runs %q, want %q", chosen, got, want)
		}
	}
	for _, chosen := range []string{"tpc", "udp,", "udp,x", ",", " udp"} {
		if _, err := Parts(chosen, "udp", "tcp"); err == nil ||
			!strings.Contains(err.Error(), "there are udp, tcp") {
			t.Errorf("%q: %v", chosen, err)
		}
	}
}
