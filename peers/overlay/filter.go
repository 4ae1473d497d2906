package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/soft"
	"github.com/weirnet/weir/overlay"
	"github.com/weirnet/weir/rule"
)

// newFilter is the soft engine with a hundred rules, of which the last keeps states.
func newFilter() (overlay.Filter, error) {
	var b strings.Builder
	b.WriteString("add check-state\n")
	for i := range 98 {
		fmt.Fprintf(&b, "add deny tcp from 192.0.2.%d to 198.51.100.0/24 dst-port %d\n", i+1,
			1000+i)
	}
	b.WriteString("add allow ip from any to any keep-state\n")
	rules, err := rule.ParseFile("rules", b.String(), nil)
	if err != nil {
		return nil, err
	}
	program, err := rule.Compile(rules, rule.CompileOptions{Strict: true})
	if err != nil {
		return nil, err
	}
	fw, err := soft.New(soft.Options{Options: firewall.DefaultOptions()})
	if err != nil {
		return nil, err
	}
	if err := fw.Load(program); err != nil {
		return nil, err
	}
	begin := time.Now()
	return overlay.FilterBy(fw.Worker(0), func() time.Duration {
		return time.Since(begin)
	}, nil), nil
}
