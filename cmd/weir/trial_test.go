package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

// TestTrialTime: a time that makes no trial is refused. With 0 the rules came into force for good.
func TestTrialTime(t *testing.T) {
	for _, words := range [][]string{{"fw", "load", "FILE"}, {"up"}, {"setup"}} {
		for _, text := range []string{"0", "0s", "-30s", "999ms", "61m"} {
			var messages bytes.Buffer
			status := run(t.Context(), append(words, "--confirm="+text, "--root", t.TempDir()), nil,
				io.Discard, &messages)
			if status != 2 || !strings.Contains(messages.String(), "between 1s and 1h") {
				t.Errorf("%s --confirm=%s: status %d, %s", words, text, status, &messages)
			}
		}
	}
}
