package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

// changing are the commands that read nothing, or whose answer is a file or a stream of another
// format. All others take -j.
var changing = []string{"up", "confirm", "down", "fw add", "fw delete", "fw zero", "fw flush",
	"fw load", "fw confirm", "fw revert",
	"ipfw", "panic", "flow capture", "page", "pod attach", "pod detach",
	"service remove", "cni", "netavark", "peer add", "peer remove", "cluster init",
	"cluster invite",
	"cluster grow", "cluster backup", "cluster restore", "cluster accept", "cluster sign", "join",
	"node remove", "proxy", "completion"}

// TestReadingCommandsTakeJSON: every command takes -j or changes something.
func TestReadingCommandsTakeJSON(t *testing.T) {
	top := newCommand(t.Context(), nil, io.Discard, io.Discard)
	for _, v := range commands() {
		cmd, _, err := top.Find(strings.Fields(v.name))
		if err != nil {
			t.Fatal(err)
		}
		flag := cmd.Flags().ShorthandLookup("j")
		if changes := slices.Contains(changing, v.name); changes == (flag != nil) {
			t.Errorf("%s: -j is %v; does it change something: %v", v.name, flag != nil, changes)
		}
	}
}
