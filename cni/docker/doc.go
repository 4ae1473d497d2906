// Package docker is the wire of Docker's remote network and address drivers: requests of dockerd in, answers of the node's agent
// out. The agent listens on /run/docker/plugins/weir.sock, where dockerd finds it by name:
//
//	docker network create -d weir --ipam-driver weir pods
//	docker run --network pods -p 8080:80 IMAGE
//	docker run --network name=pods,driver-opt=weir.name=web,driver-opt=weir.label.app=web IMAGE
//
// # What Docker does and what Weir does
//
// Docker's driver model wants an interface that Docker moves into the container and configures. Weir's pods have host
// addresses and permanent neighbours, which that model cannot express, so Join attaches the container itself, in the
// sandbox that Docker names, and hands Docker no interface to move. Docker keeps what it is good at: names, its embedded DNS
// server, and the address book, which the weir address driver fills from the node's pod range.
//
// Ports published with -p become published ports of the pod; their host port has to be given.
package docker
