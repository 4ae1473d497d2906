package main

import (
	"fmt"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/survey"
)

// session returns the ssh connection in which this command was given, nil if there is none.
func session() *api.Session {
	s, ok := survey.Session()
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

// doubts asks the node what is doubtful about its rules. The status that was read says more than
// why this was refused.
func (c *call) doubts() []string {
	var a api.Warnings
	if err := c.client().Post(c.ctx, "/v1/doubts", api.Doubts{Session: session()}, &a); err != nil {
		return nil
	}
	return a.Warnings
}
