package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/hostfacts"
	"github.com/weirnet/weir/internal/configfile"
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

// fileWarnings adds to warnings who could change the file that this command was given, unless that
// is said. The user of sudo may: who asks for root's rules may write them.
func (c *call) fileWarnings(all []string) []string {
	var users []uint32
	if u, err := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32); err == nil {
		users = append(users, uint32(u))
	}
	w := configfile.Warning(c.Arg(0), users...)
	if c.Arg(0) == "-" || w == "" || slices.Contains(all, w) {
		return all
	}
	return append(all, w)
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
