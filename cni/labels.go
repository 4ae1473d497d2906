package cni

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// namespacePlaceholder stands for the Kubernetes namespace of the pod in a pattern of podLabels.
const namespacePlaceholder = "{namespace}"

// labels returns the labels of a pod: all of the configuration, which the administrator wrote, and
// those requested by the pod's author whose keys podLabels allows.
func (c *config) labels(requested map[string]string, namespace string) (map[string]string,
	*types.Error) {
	for _, pattern := range c.PodLabels {
		if i := strings.IndexByte(pattern, '*'); i >= 0 && i < len(pattern)-1 || pattern == "" {
			return nil, fail(types.ErrInvalidNetworkConfig,
				`write a key, "team", or the beginning of one, "team.*"`,
				"podLabels: %q: '*' may stand only at the end", pattern)
		}
	}
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(requested)) {
		if _, fixed := c.Labels[key]; fixed {
			continue
		}
		if !slices.ContainsFunc(c.PodLabels, func(p string) bool {
			return allows(p, key, namespace)
		}) {
			return nil, fail(types.ErrInvalidNetworkConfig,
				fmt.Sprintf(`the network's configuration lists the keys that a pod may set; its `+
					`administrator can add "podLabels": [%q]`, key),
				"label %s=%s: network %s does not let pods set the label %q", key, requested[key],
				c.Name, key)
		}
		all[key] = requested[key]
	}
	maps.Copy(all, c.Labels)
	return all, nil
}

// allows reports whether a pattern allows a key to pods of a namespace. A '*' in the namespace,
// which CNI_ARGS has, is not one of the pattern.
func allows(pattern, key, namespace string) bool {
	begin, isBegin := strings.CutSuffix(pattern, "*")
	if strings.Contains(pattern, namespacePlaceholder) {
		if namespace == "" {
			return false
		}
		begin = strings.ReplaceAll(begin, namespacePlaceholder, namespace)
	}
	return key == begin || isBegin && strings.HasPrefix(key, begin)
}
