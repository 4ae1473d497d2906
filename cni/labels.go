package cni

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// namespaceWord stands for the Kubernetes namespace of the pod in a pattern of podLabels.
const namespaceWord = "{namespace}"

// labels are those of a pod: all of the configuration, which the administrator wrote, and of those
// that the pod's author asks for the ones whose keys the configuration leaves to authors.
func (c *config) labels(asked map[string]string, namespace string) (map[string]string,
	*types.Error) {
	for _, pattern := range c.PodLabels {
		if i := strings.IndexByte(pattern, '*'); i >= 0 && i < len(pattern)-1 || pattern == "" {
			return nil, fail(types.ErrInvalidNetworkConfig,
				`write a key, "team", or the beginning of one, "team.*"`,
				"podLabels: %q: '*' stands at the end", pattern)
		}
	}
	all := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(asked)) {
		if _, fixed := c.Labels[key]; fixed {
			continue
		}
		if !slices.ContainsFunc(c.PodLabels, func(p string) bool {
			return leaves(p, key, namespace)
		}) {
			return nil, fail(types.ErrInvalidNetworkConfig,
				fmt.Sprintf(`the network's configuration says which keys a pod may set; its administrator can add "podLabels": [%q]`, key),
				"label %s=%s: network %s does not let pods set the label %q", key, asked[key],
				c.Name, key)
		}
		all[key] = asked[key]
	}
	maps.Copy(all, c.Labels)
	return all, nil
}

// leaves says whether a pattern leaves a key to a pod of a namespace.
func leaves(pattern, key, namespace string) bool {
	if strings.Contains(pattern, namespaceWord) {
		if namespace == "" {
			return false
		}
		pattern = strings.ReplaceAll(pattern, namespaceWord, namespace)
	}
	if begin, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(key, begin)
	}
	return pattern == key
}
