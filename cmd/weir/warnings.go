package main

import (
	"fmt"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/hostfacts"
)

// session returns the ssh connection in which this command was given, nil if there is none.
func session() *api.Session {
	s, ok := hostfacts.Session()
	if !ok {
		return nil
	}
	return &s
}

// warn prints what is doubtful about the rules, as a message.
func (c *call) warn(all []string) {
	for _, w := range all {
		fmt.Fprintf(c.stderr, "warning: %s\n", c.show(w))
	}
}

// ruleWarnings asks the node for warnings about its rules. The status that was read says more than
// why this was refused.
func (c *call) ruleWarnings() []string {
	var a api.Warnings
	if err := c.client().Post(c.ctx, "/v1/doubts", api.WarningsQuery{Session: session()},
		&a); err != nil {
		return nil
	}
	return a.Warnings
}
