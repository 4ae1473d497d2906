package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/packet"
	"github.com/weirnet/weir/pod"
)

// Node is the part of the node's agent that the driver uses.
type Node interface {
	cni.Agent
	// Ranges returns the node's pod ranges and their gateways, at most one of each family.
	Ranges() []Range
	// Reserve reserves an address, or any of a family when given its unspecified address.
	// Unreserve releases it.
	Reserve(netip.Addr) (netip.Addr, error)
	Unreserve(netip.Addr)
}

// Range is a pod range of the node.
type Range struct {
	Prefix  netip.Prefix
	Gateway netip.Addr
}

// Driver serves dockerd. It keeps endpoints from their creation to their deletion; dockerd creates
// them again after a restart.
type Driver struct {
	node     Node
	networks networks

	mu        sync.Mutex
	endpoints map[string]endpoint // by Docker's endpoint id
	// whether a range of IPv4, of IPv6, was the last answer about addresses
	offered [2]bool
}

// endpoint is the data of CreateEndpoint for the Join that follows.
type endpoint struct {
	addrs   []netip.Addr
	mac     string
	publish []pod.Publish
	labels  map[string]string
	name    string
}

// ifName is the interface inside the container. A container is in one weir network: two would mean
// two default routes.
const ifName = "eth0"

// New makes a driver for a node. The file keeps the labels of networks.
func New(node Node, file string) *Driver {
	return &Driver{node: node, networks: networks{file: file}, endpoints: map[string]endpoint{}}
}

// maxRequest bounds a request of dockerd.
const maxRequest = 1 << 20

// Handler serves the plugin protocol: POST /Object.Method with a JSON object each way.
func (d *Driver) Handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, "/Plugin.Activate", func(context.Context, struct{}) (any, error) {
		return map[string][]string{"Implements": {"NetworkDriver", "IpamDriver"}}, nil
	})
	handle(mux, "/NetworkDriver.GetCapabilities", func(context.Context, struct{}) (any, error) {
		return map[string]string{"Scope": "local", "ConnectivityScope": "local"}, nil
	})
	handle(mux, "/NetworkDriver.CreateNetwork", d.createNetwork)
	handle(mux, "/NetworkDriver.DeleteNetwork", d.deleteNetwork)
	handle(mux, "/NetworkDriver.CreateEndpoint", d.createEndpoint)
	// Published ports in this answer would change nothing. For `docker ps`, dockerd takes them only
	// from drivers that are part of it, as values of its own Go types and not from JSON.
	handle(mux, "/NetworkDriver.EndpointOperInfo", func(context.Context, struct{}) (any, error) {
		return map[string]any{"Value": map[string]any{}}, nil
	})
	handle(mux, "/NetworkDriver.DeleteEndpoint", d.deleteEndpoint)
	handle(mux, "/NetworkDriver.Join", d.join)
	handle(mux, "/NetworkDriver.Leave", d.leave)
	for _, nothingToDo := range []string{"DiscoverNew", "DiscoverDelete",
		"ProgramExternalConnectivity", "RevokeExternalConnectivity"} {
		handle(mux, "/NetworkDriver."+nothingToDo, func(context.Context, struct{}) (any, error) {
			return struct{}{}, nil
		})
	}
	d.handleIPAM(mux)
	return mux
}

// handle decodes a request, calls f, and encodes its answer, or an error for dockerd.
func handle[T any](mux *http.ServeMux, path string, f func(context.Context, T) (any, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		var request T
		err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&request)
		if errors.Is(err, io.EOF) { // Activate and some others have no body
			err = nil
		}
		var answer any
		if err == nil {
			answer, err = f(r.Context(), request)
		}
		if err != nil {
			// dockerd reads Err of a network driver, and Error of an address driver
			text := "weir: " + err.Error()
			answer = map[string]string{"Err": text, "Error": text}
		}
		w.Header().Set("Content-Type", "application/vnd.docker.plugins.v1.1+json")
		_ = json.NewEncoder(w).Encode(answer) // fails when dockerd has closed the connection
	})
}

type createNetworkRequest struct {
	NetworkID          string
	Options            map[string]json.RawMessage
	IPv4Data, IPv6Data []struct{ Pool string }
}

// createNetwork refuses pools outside the node's ranges: their pods could not send or receive.
func (d *Driver) createNetwork(_ context.Context, r createNetworkRequest) (any, error) {
	for _, data := range append(r.IPv4Data, r.IPv6Data...) {
		pool, err := netip.ParsePrefix(data.Pool)
		if err != nil {
			return nil, fmt.Errorf("pool: %w", err)
		}
		if !d.inRange(pool) {
			return nil, fmt.Errorf("subnet %s is not in this node's pod ranges %v; create the "+
				"network with --ipam-driver weir", pool, d.node.Ranges())
		}
	}
	var internal bool
	if raw := r.Options["com.docker.network.internal"]; len(raw) > 0 {
		if err := json.Unmarshal(raw, &internal); err != nil {
			return nil, fmt.Errorf("options: com.docker.network.internal: %w", err)
		}
	}
	if internal {
		return nil, errors.New("--internal is not supported: the rules of the host decide what " +
			"its containers reach")
	}
	labels, err := networkLabels(r.Options)
	if err != nil {
		return nil, err
	}
	return struct{}{}, d.networks.set(r.NetworkID, labels)
}

func (d *Driver) deleteNetwork(_ context.Context, r struct{ NetworkID string }) (any, error) {
	return struct{}{}, d.networks.set(r.NetworkID, nil)
}

func (d *Driver) inRange(p netip.Prefix) bool {
	return slices.ContainsFunc(d.node.Ranges(), func(r Range) bool {
		return r.Prefix.Bits() <= p.Bits() && r.Prefix.Contains(p.Addr())
	})
}

type createEndpointRequest struct {
	NetworkID, EndpointID string
	Options               map[string]json.RawMessage
	Interface             struct{ Address, AddressIPv6, MacAddress string }
}

// portBinding is Docker's com.docker.network.portmap.
type portBinding struct {
	Proto                       uint8
	Port, HostPort, HostPortEnd uint16
	HostIP                      string
}

func (d *Driver) createEndpoint(_ context.Context, r createEndpointRequest) (any, error) {
	var e endpoint
	for _, s := range []string{r.Interface.Address, r.Interface.AddressIPv6} {
		if s == "" {
			continue
		}
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("endpoint address: %w", err)
		}
		e.addrs = append(e.addrs, p.Addr())
	}
	e.mac = r.Interface.MacAddress
	if raw := r.Options["com.docker.network.portmap"]; len(raw) > 0 {
		var bindings []portBinding
		if err := json.Unmarshal(raw, &bindings); err != nil {
			return nil, fmt.Errorf("published ports: %w", err)
		}
		for _, b := range bindings {
			p := pod.Publish{Proto: packet.Proto(b.Proto), HostPort: b.HostPort, Port: b.Port}
			if b.HostPort == 0 || b.HostPortEnd > b.HostPort {
				return nil, fmt.Errorf("port %d is published without one host port; give it, as "+
					"in -p 8080:%d", b.Port, b.Port)
			}
			if b.HostIP != "" {
				host, err := netip.ParseAddr(b.HostIP)
				if err != nil {
					return nil, fmt.Errorf("published port %d: %w", b.HostPort, err)
				}
				if !host.IsUnspecified() || host.Is4() { // [::] is both families, as for CNI
					p.Host = host.Unmap()
				}
			}
			e.publish = append(e.publish, p)
		}
	}
	labels, err := d.networks.labels(r.NetworkID)
	if err != nil {
		return nil, err
	}
	if e.name, e.labels, err = driverOptions(r.Options); err != nil {
		return nil, err
	}
	for key, value := range labels {
		if _, own := e.labels[key]; !own {
			e.labels[key] = value
		}
	}
	if e.name == "" {
		e.name = shortName(r.EndpointID)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endpoints[r.EndpointID] = e
	return map[string]any{"Interface": map[string]string{}}, nil
}

// driverOptions returns the name and labels of --network
// name=pods,driver-opt=weir.name=web,driver-opt=weir.label.app=web. Docker passes neither the
// container's name nor its labels to a network driver. Another option of Weir's is refused: a
// misspelt key must not change which rules match the container.
func driverOptions(options map[string]json.RawMessage) (name string, labels map[string]string,
	err error) {
	labels = map[string]string{}
	for key, raw := range options {
		if !strings.HasPrefix(key, "weir.") {
			continue // an option of Docker's own
		}
		var value string
		label, isLabel := strings.CutPrefix(key, "weir.label.")
		switch isText := json.Unmarshal(raw, &value) == nil; {
		case isText && key == "weir.name":
			name = value
		case isText && isLabel:
			labels[label] = value
		default:
			return "", nil, fmt.Errorf("option %s=%s is unknown; a container has weir.name=NAME "+
				"and weir.label.KEY=VALUE", key, raw)
		}
	}
	return name, labels, nil
}

type endpointRequest struct{ NetworkID, EndpointID string }

func (d *Driver) deleteEndpoint(ctx context.Context, r endpointRequest) (any, error) {
	if _, err := d.leave(ctx, r); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.endpoints, r.EndpointID)
	return struct{}{}, nil
}

type joinRequest struct {
	NetworkID, EndpointID, SandboxKey string
	Options                           map[string]json.RawMessage
}

// join attaches the container. Docker's endpoint id identifies the pod, because leave gets only it.
func (d *Driver) join(ctx context.Context, r joinRequest) (any, error) {
	d.mu.Lock()
	e, ok := d.endpoints[r.EndpointID]
	d.mu.Unlock()
	if !ok {
		return nil, fmt.Errorf("unknown endpoint %s; disconnect the container and connect it "+
			"again", r.EndpointID)
	}
	request := pod.Spec{
		Container: r.EndpointID, Name: e.name, Netns: r.SandboxKey, IfName: ifName,
		Addrs: e.addrs, Labels: e.labels, Publish: e.publish,
		RuntimeMovesInterface: true,
		// Docker turns IPv6 off in a sandbox without it, and then refuses its routes.
		OnlyAddrs: len(e.addrs) > 0,
	}
	if e.mac != "" {
		if err := request.MAC.UnmarshalText([]byte(e.mac)); err != nil {
			return nil, fmt.Errorf("pod %s: %w", e.name, err)
		}
	}
	reply, err := d.node.Attach(ctx, request)
	if err != nil {
		return nil, err
	}
	answer := joinAnswer{InterfaceName: interfaceName{SrcName: reply.InnerIf, DstPrefix: "eth"}}
	for _, gw := range reply.Gateways {
		if gw.Is4() {
			answer.Gateway = gw.String()
		} else {
			answer.GatewayIPv6 = gw.String()
		}
		answer.StaticRoutes = append(answer.StaticRoutes,
			staticRoute{Destination: netip.PrefixFrom(gw, gw.BitLen()).String(),
				RouteType: routeConnected})
		// Where another network of the container has its default route, other pods would see its
		// address there, and the rules no labels.
		for _, own := range d.node.Ranges() {
			if own.Gateway == gw {
				answer.StaticRoutes = append(answer.StaticRoutes,
					staticRoute{Destination: own.Prefix.String(), NextHop: gw.String()})
			}
		}
	}
	return answer, nil
}

// joinAnswer has the interface that Docker moves into the sandbox, and its routes: the gateway is
// on the link although the container's address is a /32.
type joinAnswer struct {
	InterfaceName        interfaceName
	Gateway, GatewayIPv6 string
	StaticRoutes         []staticRoute
}

type interfaceName struct{ SrcName, DstPrefix string }

type staticRoute struct {
	Destination string
	RouteType   int    // 0 has a next hop
	NextHop     string `json:",omitempty"`
}

// routeConnected is libnetwork's type of a route without next hop.
const routeConnected = 1

// shortName is an id as Docker prints it.
func shortName(id string) string { return id[:min(12, len(id))] }

// leave detaches.
func (d *Driver) leave(ctx context.Context, r endpointRequest) (any, error) {
	if err := d.node.Detach(ctx, r.EndpointID, ifName); err != nil {
		return nil, err
	}
	return struct{}{}, nil
}
