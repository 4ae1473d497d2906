package main

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestTimesAreNotNegative: no command takes a negative time. With one, status --wait never ended.
func TestTimesAreNotNegative(t *testing.T) {
	top := newCommand(t.Context(), nil, io.Discard, io.Discard)
	times := 0
	for _, v := range commands() {
		cmd, _, err := top.Find(strings.Fields(v.name))
		if err != nil {
			t.Fatal(err)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "duration" {
				return
			}
			times++
			if err := f.Value.Set("-5s"); err == nil {
				t.Errorf("%s --%s takes -5s", v.name, f.Name)
			}
		})
	}
	if times < 7 {
		t.Errorf("only %d flags are times", times)
	}
}

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
