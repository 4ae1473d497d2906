package netavark

import (
	"encoding/json"
	"net/netip"
)

// apiVersion is that of the plugin protocol.
const apiVersion = "1.0.0"

// network is what of a network's configuration is read. Other fields are podman's.
type network struct {
	Name        string            `json:"name"`
	Interface   string            `json:"network_interface"`
	Internal    bool              `json:"internal"`
	Options     map[string]string `json:"options"`
	IPAMOptions map[string]string `json:"ipam_options"`
	Subnets     []json.RawMessage `json:"subnets"`
	Routes      []json.RawMessage `json:"routes"`
	DNSServers  []netip.Addr      `json:"network_dns_servers"`
}

// container is the request of setup and teardown.
type container struct {
	ID      string  `json:"container_id"`
	Name    string  `json:"container_name"`
	Ports   []port  `json:"port_mappings"`
	Network network `json:"network"`
	Own     struct {
		Interface string            `json:"interface_name"`
		IPs       []netip.Addr      `json:"static_ips"`
		MAC       string            `json:"static_mac"`
		Aliases   []string          `json:"aliases"`
		Options   map[string]string `json:"options"`
	} `json:"network_options"`
}

// port is one or more published ports.
type port struct {
	Container uint16 `json:"container_port"`
	HostIP    string `json:"host_ip"`
	Host      uint16 `json:"host_port"`
	Protocol  string `json:"protocol"` // or several, with commas
	Range     uint16 `json:"range"`    // how many, counting up from both ports; 0: one
}

// status is the answer of setup.
type status struct {
	SearchDomains []string             `json:"dns_search_domains"`
	Servers       []netip.Addr         `json:"dns_server_ips"`
	Interfaces    map[string]ifaceInfo `json:"interfaces"`
}

type ifaceInfo struct {
	MAC     string       `json:"mac_address"`
	Subnets []addrOnLink `json:"subnets"`
}

type addrOnLink struct {
	Gateway netip.Addr   `json:"gateway,omitzero"`
	IPNet   netip.Prefix `json:"ipnet"`
}

type info struct {
	Version    string `json:"version"`
	APIVersion string `json:"api_version"`
}

type failure struct {
	Error string `json:"error"`
}
