// Package netavark is a network plugin for netavark, which replaces CNI in podman 5 and later:
// https://github.com/containers/netavark/blob/main/plugin-API.md. Like package cni it only checks
// and translates a request and passes it to the node's agent.
//
// podman calls it with create when a network is made, to check the network's options; netavark
// calls it with setup NETNS and teardown NETNS for each container. Requests come on stdin, answers
// go to stdout, as JSON. A failure is an object with an error, and exit status 1.
package netavark
