package main

import (
	"strings"
	"testing"

	"github.com/weirnet/weir/agent/doctor"
)

// TestConclusion: for a user without rights, weir doctor does not say that the machine lacks a
// feature, only that root has to ask.
func TestConclusion(t *testing.T) {
	missing, untried := doctor.Finding{Name: "clsact"}, doctor.Finding{Name: "tcx", Untried: true}
	for _, c := range []struct {
		report doctor.Report
		want   string
	}{
		{doctor.Report{Able: true, Findings: []doctor.Finding{missing}}, "can guard"},
		{doctor.Report{Findings: []doctor.Finding{missing, untried}}, "as this user"},
		{doctor.Report{Findings: []doctor.Finding{missing}}, "a required feature is missing"},
	} {
		if got := conclusion(c.report); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s, want %q", c.report, got, c.want)
		}
	}
}
