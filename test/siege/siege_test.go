package main

import (
	"strings"
	"testing"
)

// TestOnly: a name that no scenario has is refused.
func TestOnly(t *testing.T) {
	if err := (config{only: "blind,no such scenario"}).checkOnly(); err == nil || !strings.Contains(err.Error(), `"no such scenario"`) {
		t.Errorf("error %v", err)
	}
	if err := (config{}).checkOnly(); err != nil {
		t.Error(err)
	}
}
