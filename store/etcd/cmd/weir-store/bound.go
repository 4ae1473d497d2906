package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"github.com/weirnet/weir/store/cluster"
	"github.com/weirnet/weir/store/members"
)

// bound reads the file of the certificates of hosts that were in force when this store host last
// saw them. Those of another CA are of an earlier cluster. A damaged file is an error: an attacker
// in the store could join by the name of a host otherwise.
func (h home) bound(ca []cluster.Key) (members.Certificates, error) {
	all := members.Certificates{}
	text, err := os.ReadFile(h.file(boundFile))
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	var nodes []cluster.Node
	if err == nil {
		err = json.Unmarshal(text, &nodes)
	}
	if err != nil {
		return all, fmt.Errorf("%s: %w", h.file(boundFile), err)
	}
	for i := range nodes {
		value, err := cluster.Encode(&nodes[i])
		if err == nil && nodes[i].Verify(ca) == nil {
			all[nodes[i].Name] = members.Certificate{Node: nodes[i], Value: value}
		}
	}
	return all, nil
}

// listed returns the content of the file.
func listed(all members.Certificates) []cluster.Node {
	nodes := make([]cluster.Node, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		nodes = append(nodes, all[name].Node)
	}
	return nodes
}

// certificates returns those that are bound: members.Joiner.Bound.
func (r *revocations) certificates() members.Certificates {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.bound)
}
