package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/tty"
)

// completionTimeout is how long a shell waits for values of the node.
const completionTimeout = time.Second

// complete sets the function that completes the command's arguments. It gets those before the one
// that is completed.
func (c *call) complete(values func(before []string) []cobra.Completion) {
	c.cmd.ValidArgsFunction = completer(values)
}

// completeFlag is complete for the value of a flag.
func (c *call) completeFlag(name string, values func(before []string) []cobra.Completion) {
	_ = c.cmd.RegisterFlagCompletionFunc(name, completer(values))
}

// completer leaves out the values with characters that a shell or a terminal interprets. The names
// come from outside, and when several match bash inserts what they share without quoting it.
func completer(values func(before []string) []cobra.Completion) cobra.CompletionFunc {
	return func(_ *cobra.Command, before []string, _ string) ([]cobra.Completion,
		cobra.ShellCompDirective) {
		all := slices.DeleteFunc(values(before), func(value cobra.Completion) bool {
			name, _, _ := strings.Cut(value, "\t")
			return name == "" || name[0] == '-' || strings.ContainsFunc(name, isSpecial)
		})
		return all, cobra.ShellCompDirectiveNoFileComp
	}
}

func isSpecial(r rune) bool {
	return !strings.ContainsRune("._:/@+=-", r) && (r < '0' || r > '9') &&
		(r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// live reads an answer of the node for a completion. It stays empty when no node answers.
func live[T any](c *call, path string) (answer T) {
	ctx, cancel := context.WithTimeout(c.ctx, completionTimeout)
	defer cancel()
	_ = c.client().Get(ctx, path, &answer)
	return answer
}

// liveRules has the numbers of the rules, described by the rules.
func (c *call) liveRules([]string) (all []cobra.Completion) {
	for _, r := range live[api.Rules](c, "/v1/rules").Rules {
		all = append(all, cobra.CompletionWithDesc(fmt.Sprint(r.Number), tty.Escape(r.Text)))
	}
	return all
}

// liveTables has the words of `fw table`: names of tables, what can be done, members.
func (c *call) liveTables(before []string) (all []cobra.Completion) {
	switch {
	case len(before) == 0:
		all = append(all, "all")
	case len(before) == 1:
		return strings.Fields("list create destroy add delete flush lookup info")
	case len(before) > 2 || before[1] != "delete":
		return nil
	}
	query := url.Values{"members": {"0"}}
	if len(before) > 0 {
		query = url.Values{"name": before[:1]}
	}
	for _, t := range live[api.Tables](c, "/v1/tables?"+query.Encode()).Tables {
		if len(before) == 0 {
			all = append(all, t.Name)
		} else if t.Name == before[0] {
			for _, e := range t.Entries {
				all = append(all, e.Prefix)
			}
		}
	}
	return all
}

// livePods has the names of the pods, if none has been given yet.
func (c *call) livePods(before []string) (all []cobra.Completion) {
	if len(before) == 0 {
		for _, p := range live[api.Pods](c, "/v1/pods").Pods {
			all = append(all, p.Name)
		}
	}
	return all
}

// liveServices has the names of the services, if none has been given yet.
func (c *call) liveServices(before []string) (all []cobra.Completion) {
	if len(before) == 0 {
		for _, s := range live[api.Services](c, "/v1/services").Services {
			all = append(all, s.Name)
		}
	}
	return all
}

// livePeers has the names of the peers, if none has been given yet.
func (c *call) livePeers(before []string) (all []cobra.Completion) {
	if len(before) == 0 {
		for _, p := range live[api.Peers](c, "/v1/peers").Peers {
			all = append(all, p.Name)
		}
	}
	return all
}

// interfaces has the names of this machine's interfaces.
func interfaces([]string) (all []cobra.Completion) {
	list, _ := net.Interfaces()
	for _, i := range list {
		all = append(all, i.Name)
	}
	return all
}

// fixed completes one argument from words.
func fixed(words ...string) func([]string) []cobra.Completion {
	return func(before []string) []cobra.Completion {
		if len(before) > 0 {
			return nil
		}
		return words
	}
}
