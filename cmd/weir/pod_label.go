package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/pod"
)

func podLabelCommand(c *call) action {
	asJSON := c.json("")
	c.takes(2, -1)
	c.complete(func(before []string) []cobra.Completion {
		if len(before) > 0 {
			return nil
		}
		return c.livePods(before)
	})
	return func() error {
		request := api.Label{Set: map[string]string{}}
		for _, word := range c.Args()[1:] {
			key, value, sets := strings.Cut(word, "=")
			if !sets {
				key, sets = strings.CutSuffix(word, "-")
				if !sets {
					return c.wrong("label %q is not KEY=VALUE to set it or KEY- to remove it", word)
				}
				request.Remove = append(request.Remove, key)
				continue
			}
			if old, twice := request.Set[key]; twice && old != value {
				return c.wrong("label %s is set to %q and to %q", key, old, value)
			}
			request.Set[key] = value
		}
		for _, key := range request.Remove {
			if _, twice := request.Set[key]; twice {
				return c.wrong("label %s is set and removed", key)
			}
		}
		pod, err := c.podNamed(c.Arg(0))
		if err != nil {
			return err
		}
		request.Container = pod.Container
		var changed api.Pods
		if err := c.post("/v1/pods/label", request, &changed); err != nil {
			return err
		}
		if *asJSON {
			return printJSON(c.out, changed)
		}
		for _, p := range changed.Pods {
			fmt.Fprintf(c.out, "%s %s\n", c.show(p.Name), labelText(p.Labels))
		}
		return nil
	}
}

// podNamed finds a pod by its name, its container's id or its network namespace.
func (c *call) podNamed(name string) (api.Pod, error) {
	var pods api.Pods
	if err := c.get("/v1/pods", &pods); err != nil {
		return api.Pod{}, err
	}
	netns, _ := netnsPath(name) // it may be gone, or this may be a name
	for _, p := range pods.Pods {
		if p.Name == name || p.Container == name || netns != "" && p.Netns == netns {
			return p, nil
		}
	}
	return api.Pod{}, c.failed(notFound{name})
}

// otherLabels reports that a pod that was attached before has not the labels that were asked for.
type otherLabels struct{ name, has, wants string }

func (e otherLabels) Error() string {
	return fmt.Sprintf("%s is attached already, and its labels are %q", e.name, e.has)
}

// Hint is how it gets them.
func (e otherLabels) Hint() string { return "weir pod label " + e.name + " " + e.wants }

// checkAttached compares a pod with what was asked for: one that was attached before stays as it
// is.
func checkAttached(p *api.Pod, asked *pod.Spec) error {
	other := ""
	switch {
	case asked.Name != "" && asked.Name != p.Name:
		other = "--name"
	case asked.MTU != 0 && asked.MTU != p.MTU:
		other = "--mtu"
	case misses(p.Publish, asked.Publish):
		other = "--publish"
	case misses(p.Addrs, asked.Addrs):
		other = "--addr"
	default:
		return checkLabels(p, asked.Labels)
	}
	return advice{fmt.Errorf("%s is attached already, and %s changes nothing of it", p.Name, other),
		"weir pod detach " + p.Name + ", then attach it again"}
}

// misses reports whether something that was asked for is missing.
func misses[T comparable](has, asked []T) bool {
	return slices.ContainsFunc(asked, func(one T) bool { return !slices.Contains(has, one) })
}

// checkLabels compares a pod with the labels that were asked for.
func checkLabels(p *api.Pod, asked map[string]string) error {
	var wants []string
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		if value, there := p.Labels[key]; !there || value != asked[key] {
			wants = append(wants, key+"="+asked[key])
		}
	}
	if wants == nil {
		return nil
	}
	return otherLabels{p.Name, labelText(p.Labels), strings.Join(wants, " ")}
}
