package netavark

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// create checks a new network, and returns it as podman keeps it. It has the fields that it came
// with, but not podman's address management, and not its name server, which knows nothing of these
// containers.
func (c *Call) create() (any, error) {
	whole := map[string]json.RawMessage{}
	if err := c.read(&whole); err != nil {
		return nil, err
	}
	text, err := json.Marshal(whole)
	if err != nil {
		return nil, err
	}
	var n network
	if err := json.Unmarshal(text, &n); err != nil {
		return nil, fmt.Errorf("read the network: %w", err)
	}
	if err := n.check(); err != nil {
		return nil, fmt.Errorf("network %s: %w", n.Name, err)
	}
	whole["ipam_options"], whole["dns_enabled"] = json.RawMessage(`{"driver":"none"}`),
		json.RawMessage("false")
	return whole, nil
}

// check refuses what the network could not be.
func (n *network) check() error {
	switch driver := n.IPAMOptions["driver"]; {
	case n.Internal:
		return errors.New("--internal is not supported: the rules of the host decide what its " +
			"containers reach")
	case len(n.Subnets) > 0:
		return errors.New("--subnet, --gateway and --ip-range are not supported: addresses are " +
			"from [pods] ranges of /etc/weir/weir.toml")
	case len(n.Routes) > 0:
		return errors.New("--route is not supported: a container has one link, to the host, and " +
			"its default route")
	case driver != "" && driver != "none":
		return fmt.Errorf("--ipam-driver %s is not supported: addresses are from [pods] "+
			"ranges of /etc/weir/weir.toml", driver)
	case n.Interface != "":
		return fmt.Errorf("--interface-name %s is not supported: each container has an "+
			"interface of its own", n.Interface)
	case len(n.DNSServers) > 0:
		return errors.New("--dns is not supported for a network: the node answers its containers " +
			"itself; give --dns to podman run")
	}
	_, err := readOptions(n.Options)
	return err
}

// options of a network or a container, podman network create -o KEY=VALUE.
type options struct {
	labels map[string]string
	mtu    int
	root   string // the agent's --root
}

const labelOption = "label."

// readOptions refuses what it does not know: a misspelt key must not change who may talk to whom.
func readOptions(all map[string]string) (options, error) {
	o := options{labels: map[string]string{}, root: "/"}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		value := all[key]
		label, isLabel := strings.CutPrefix(key, labelOption)
		switch {
		case isLabel:
			o.labels[label] = value
		case key == "mtu":
			mtu, err := strconv.Atoi(value)
			if err != nil {
				return o, fmt.Errorf("option mtu=%s is not a number", value)
			}
			o.mtu = mtu
		case key == "root":
			o.root = value
		default:
			return o, fmt.Errorf("unknown option %s=%s: there are label.KEY, mtu and root", key,
				value)
		}
	}
	return o, nil
}
