package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/weirnet/weir/internal/nstest"
)

// plugins adds a container to a host by Debian's CNI plugins, each with the result of the one
// before.
func (h *host) plugins(name string, ports []map[string]any, types ...string) (*nstest.Node,
	netip.Addr, error) {
	n, err := h.b.lab.AddNode(fmt.Sprintf("%s-%d", name, h.number))
	if err != nil {
		return nil, netip.Addr{}, err
	}
	ipam := map[string]any{
		"type": "host-local", "ranges": [][]map[string]any{{{"subnet": h.podRange().String()}}},
		"routes":  []map[string]any{{"dst": "0.0.0.0/0"}},
		"dataDir": filepath.Join(h.b.dir, "cni", fmt.Sprint(h.number)),
	}
	var result json.RawMessage
	for _, kind := range types {
		c := map[string]any{"cniVersion": "0.4.0", "name": fmt.Sprint("bench", h.number),
			"type": kind}
		switch kind {
		case "bridge":
			maps.Copy(c, map[string]any{"bridge": "cni0", "isGateway": true, "ipam": ipam})
		case "ptp":
			c["ipam"] = ipam
		case "portmap":
			c["runtimeConfig"] = map[string]any{"portMappings": ports}
			c["snat"] = true
		}
		if result != nil {
			c["prevResult"] = result
		}
		text, err := json.Marshal(c)
		if err != nil {
			return nil, netip.Addr{}, err
		}
		cmd := h.Command(filepath.Join("/usr/lib/cni", kind))
		cmd.Stdin = strings.NewReader(string(text))
		cmd.Env = []string{
			"CNI_COMMAND=ADD", "CNI_CONTAINERID=" + name, "CNI_NETNS=" + n.Path(),
			"CNI_IFNAME=eth0", "CNI_PATH=/usr/lib/cni",
			"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		}
		out, err := cmd.Output()
		if err != nil {
			return nil, netip.Addr{}, fmt.Errorf("plugin %s: %w: %s", kind, err, out)
		}
		result = out
	}
	var r struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(result, &r); err != nil || len(r.IPs) == 0 {
		return nil, netip.Addr{}, fmt.Errorf("plugins %v: no address in %s: %w", types, result, err)
	}
	return n, r.IPs[0].Address.Addr(), nil
}
