// Package docker is a remote network and address driver for Docker: it translates requests of
// dockerd for the node's agent. The agent listens on /run/docker/plugins/weir.sock, where dockerd
// finds it by name:
//
//	docker network create -d weir --ipam-driver weir pods
//	docker run --network pods -p 8080:80 IMAGE
//	docker run --network name=pods,driver-opt=weir.name=web,driver-opt=weir.label.app=web IMAGE
//
// # What Docker does and what Weir does
//
// Join makes the veth pair. Docker moves the inner end into the sandbox once that exists, and gives
// it the address, a /32 from the weir address driver, and the routes. Names, the embedded DNS
// server and the records of addresses stay with Docker; the address driver allocates from the
// node's pod range.
//
// Ports published with -p become published ports of the pod; their host port must be given.
package docker
