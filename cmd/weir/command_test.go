package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestRulesAreNotFlags: flags of a command that takes a rule, a packet or a filter end at its first
// argument; what follows reaches the parser as it was typed. Elsewhere flags may follow arguments.
func TestRulesAreNotFlags(t *testing.T) {
	for _, c := range []struct{ line, args, flags string }{
		{"fw add 100 deny ip from any to any -- -q --root x -h",
			"100 deny ip from any to any -- -q --root x -h", ""},
		{"--root /r fw add -q allow tcp from any to me -h", "allow tcp from any to me -h",
			"quiet=true root=/r"},
		{"fw add -- -q", "-q", ""},
		{"fw add add fw add", "add fw add", ""},
		{"fw --root=/r delete set 5 --root /x", "set 5 --root /x", "root=/r"},
		{"fw show -at 100-200 -j", "100-200 -j", "counters=true times=true"},
		{"flow watch -f rules --me 10.0.0.1 proto tcp and not -j", "proto tcp and not -j",
			"me=10.0.0.1/32 rules=rules"},
		{"fw load FILE --confirm 30s", "FILE", "confirm=30s"},
		{"fw load --confirm=30s -", "-", "confirm=30s"},
		{"peer add left --key k --pods 10.0.0.0/8,fd00::/8 --encrypt=false", "left",
			"encrypt=false key=k pods=[10.0.0.0/8,fd00::/8]"},
		{"dial example.com:443 -4 --tls", "example.com:443", "ipv4=true tls=true"},
		{"pod detach -- -name", "-name", ""},
	} {
		top := newCommand(t.Context(), nil, io.Discard, io.Discard)
		cmd, rest, err := top.Find(strings.Fields(c.line))
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		var flags []string
		cmd.Flags().Visit(func(f *pflag.Flag) {
			flags = append(flags, f.Name+"="+f.Value.String())
		})
		slices.Sort(flags)
		got := strings.Join(cmd.Flags().Args(), " ")
		if err != nil || got != c.args || strings.Join(flags, " ") != c.flags {
			t.Errorf("%q: arguments %q, flags %q, want %q and %q (%v)", c.line, got, flags, c.args,
				c.flags, err)
		}
	}
}
