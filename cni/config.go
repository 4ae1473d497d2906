package cni

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/weirnet/weir/internal/forward"
	"github.com/weirnet/weir/pod"
)

// config is the network configuration that the runtime sends.
type config struct {
	CNIVersion   string          `json:"cniVersion"`
	Name         string          `json:"name"`
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	DisableCheck bool            `json:"disableCheck"`
	DisableGC    bool            `json:"disableGC"`
	IPAM         json.RawMessage `json:"ipam"` // Weir reads only its type
	DNS          types.DNS       `json:"dns"`
	PrevResult   json.RawMessage `json:"prevResult"`

	Args struct {
		CNI struct {
			Labels []struct{ Key, Value string } `json:"labels"`
			IPs    []string                      `json:"ips"`
			MAC    string                        `json:"mac"`
		} `json:"cni"`
	} `json:"args"`
	Runtime struct {
		PortMappings []portMapping     `json:"portMappings"`
		Bandwidth    *bandwidth        `json:"bandwidth"`
		IPs          []string          `json:"ips"`
		MAC          string            `json:"mac"`
		Annotations  map[string]string `json:"io.kubernetes.cri.pod-annotations"`
		Aliases      json.RawMessage   `json:"aliases"` // podman's; its DNS server handles names
	} `json:"runtimeConfig"`

	Labels map[string]string `json:"labels"`
	// keys of labels, or beginnings with '*', that a pod's author may set
	PodLabels []string `json:"podLabels"`
	MTU       int      `json:"mtu"`
	Root      string   `json:"root"`

	// The attachments that GC keeps; nil: the runtime gives no list.
	Valid   []types.GCAttachment `json:"cni.dev/valid-attachments"`
	ValidV1 []types.GCAttachment `json:"cni.dev/attachments"`
}

type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

type bandwidth struct {
	IngressRate  uint64 `json:"ingressRate"`
	IngressBurst uint64 `json:"ingressBurst"`
	EgressRate   uint64 `json:"egressRate"`
	EgressBurst  uint64 `json:"egressBurst"`
}

// parseConfig reads and checks a configuration. It ignores unknown keys in runtimeConfig and args,
// which may be for other plugins of a chain, and refuses all others.
func parseConfig(stdin []byte) (*config, *types.Error) {
	var loose struct {
		Args    json.RawMessage `json:"args"`
		Runtime json.RawMessage `json:"runtimeConfig"`
	}
	whole := map[string]json.RawMessage{}
	if err := json.Unmarshal(stdin, &whole); err != nil {
		return nil, fail(types.ErrDecodingFailure, "the runtime must send one JSON object",
			"network configuration: %s", place(stdin, err))
	}
	loose.Args, loose.Runtime = whole["args"], whole["runtimeConfig"]
	delete(whole, "args")
	delete(whole, "runtimeConfig")
	strict, err := json.Marshal(whole)
	if err != nil {
		return nil, fail(types.ErrDecodingFailure, "", "network configuration: %v", err)
	}
	c := new(config)
	d := json.NewDecoder(bytes.NewReader(strict))
	d.DisallowUnknownFields()
	if err := d.Decode(c); err != nil {
		return nil, fail(types.ErrInvalidNetworkConfig,
			"known keys of a weir-cni network: name, cniVersion, type, capabilities, labels, "+
				"podLabels, mtu, root, ipam, dns, args",
			"network configuration: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if len(loose.Args) > 0 {
		if err := json.Unmarshal(loose.Args, &c.Args); err != nil {
			return nil, fail(types.ErrInvalidNetworkConfig, "", "args: %v", err)
		}
	}
	if len(loose.Runtime) > 0 {
		if err := json.Unmarshal(loose.Runtime, &c.Runtime); err != nil {
			return nil, fail(types.ErrInvalidNetworkConfig, "", "runtimeConfig: %v", err)
		}
	}
	if c.Root == "" {
		c.Root = "/"
	}
	return c, nil
}

// place adds line and column to a syntax error.
func place(data []byte, err error) string {
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return err.Error()
	}
	before := data[:min(int(syntax.Offset), len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := len(before) - (bytes.LastIndexByte(before, '\n') + 1)
	return fmt.Sprintf("line %d, column %d: %v", line, column, err)
}

// ipamType is the name of the delegated IPAM plugin, empty for Weir's own.
func (c *config) ipamType() (string, error) {
	if len(c.IPAM) == 0 || string(c.IPAM) == "null" {
		return "", nil
	}
	var i types.IPAM
	if err := json.Unmarshal(c.IPAM, &i); err != nil {
		return "", err
	}
	if i.Type == "weir" {
		return "", nil
	}
	if strings.ContainsAny(i.Type, "/\\") {
		return "", fmt.Errorf("%q is a path; name the plugin only", i.Type)
	}
	return i.Type, nil
}

// request combines the runtime's request from all places; a capability (runtimeConfig) overrides
// args.
func (c *config) request(e Env) (pod.Spec, *types.Error) {
	r := pod.Spec{Network: c.Name, Container: e.Container, Netns: e.Netns, IfName: e.IfName,
		MTU: c.MTU}
	requested := map[string]string{}
	for _, l := range c.Args.CNI.Labels {
		requested[l.Key] = l.Value
	}
	for k, v := range c.Runtime.Annotations {
		if key, ok := strings.CutPrefix(k, "weir.labels/"); ok {
			requested[key] = v
		}
	}
	args, err := e.args()
	if err != nil {
		return r, fail(types.ErrInvalidEnvironmentVariables, "CNI_ARGS is KEY=VALUE;KEY=VALUE",
			"CNI_ARGS: %v", err)
	}
	maps.Copy(requested, args.labels)
	var refused *types.Error
	if r.Labels, refused = c.labels(requested, args.namespace); refused != nil {
		return r, refused
	}
	r.Fixed = slices.Sorted(maps.Keys(c.Labels))
	r.Name = args.name
	ips := c.Runtime.IPs
	if len(ips) == 0 {
		ips = c.Args.CNI.IPs
	}
	if len(ips) == 0 {
		ips = args.ips
	}
	for _, s := range ips {
		a, err := parseIP(s)
		if err != nil {
			return r, fail(types.ErrInvalidNetworkConfig, "write ADDRESS or ADDRESS/LENGTH",
				"requested address %q: %v", s, err)
		}
		r.Addrs = append(r.Addrs, a)
	}
	if mac := first(c.Runtime.MAC, c.Args.CNI.MAC, args.mac); mac != "" {
		if err := r.MAC.UnmarshalText([]byte(mac)); err != nil {
			return r, fail(types.ErrInvalidNetworkConfig,
				"write six pairs of hex digits, 02:00:00:00:00:01", "requested MAC address: %v",
				err)
		}
	}
	for _, p := range c.Runtime.PortMappings {
		pub, err := p.publish()
		if err != nil {
			return r, fail(types.ErrInvalidNetworkConfig,
				"a port mapping has hostPort, containerPort, protocol (tcp, udp or sctp) and "+
					"perhaps hostIP", "port mapping: %v", err)
		}
		if pub.HostPort != 0 { // 0: the runtime lists a port that is exposed and not published
			r.Publish = append(r.Publish, pub)
		}
	}
	if b := c.Runtime.Bandwidth; b != nil {
		r.Rates = forward.Rates{In: b.IngressRate, Out: b.EgressRate, InBurst: b.IngressBurst / 8,
			OutBurst: b.EgressBurst / 8}
	}
	return r, nil
}

func first(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func parseIP(s string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr(), nil
	}
	return netip.ParseAddr(s)
}

// publish reads a port mapping. TCP is the default protocol.
func (p portMapping) publish() (pod.Publish, error) {
	proto, err := pod.ParsePublishable(p.Protocol)
	if err != nil {
		return pod.Publish{}, err
	}
	if p.HostPort < 0 || p.HostPort > 65535 || p.ContainerPort < 1 || p.ContainerPort > 65535 {
		return pod.Publish{}, fmt.Errorf("%d to %d: ports go from 1 to 65535", p.HostPort,
			p.ContainerPort)
	}
	pub := pod.Publish{Proto: proto, HostPort: uint16(p.HostPort), Port: uint16(p.ContainerPort)}
	if p.HostIP != "" {
		a, err := netip.ParseAddr(p.HostIP)
		if err != nil {
			return pod.Publish{}, fmt.Errorf("hostIP: %w", err)
		}
		if !a.IsUnspecified() {
			pub.Host = a.Unmap()
		} else if a.Is4() {
			pub.Host = a
		}
	}
	return pub, nil
}
