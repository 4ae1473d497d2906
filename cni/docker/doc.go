// Package docker is the wire of Docker's remote network and address drivers: requests of dockerd
// in, answers of the node's agent out. The agent listens on /run/docker/plugins/weir.sock, where
// dockerd finds it by name:
//
//	docker network create -d weir --ipam-driver weir pods
//	docker run --network pods -p 8080:80 IMAGE
//	docker run --network name=pods,driver-opt=weir.name=web,driver-opt=weir.label.app=web IMAGE
//
// # What Docker does and what Weir does
//
// Join makes the veth pair and leaves the inner end where Docker, once the sandbox exists, moves it
// from and gives it the address, a /32 from the weir address driver, and the routes. Docker keeps
// what it is good at: names, its embedded DNS server, and the address book, which the address
// driver fills from the node's pod range.
//
// Ports published with -p become published ports of the pod; their host port has to be given.
package docker
