// Package cni is the front end of the Container Network Interface: it reads the environment and
// standard input and writes a result or an error object. It only checks and translates the request
// of a runtime and passes it to the node's agent.
//
// It supports versions 1.1.0, 1.0.0 and 0.4.0 of the specification with the operations ADD, DEL,
// CHECK, GC, STATUS and VERSION.
//
// # Configuration
//
//	{
//	  "cniVersion": "1.0.0", "name": "weir", "type": "weir-cni",
//	  "capabilities": {"portMappings": true, "bandwidth": true, "ips": true, "mac": true,
//	                   "io.kubernetes.cri.pod-annotations": true},
//	  "labels": {"app": "web"},            labels of every pod of this network:
//	                                       table(app=web) in rules
//	  "podLabels": ["team.*"],             keys that a pod's author may set; default: none
//	  "mtu": 1500,                         default: the node's
//	  "root": "/",                         the agent's --root
//	  "ipam": {"type": "host-local", ...}  default: addresses from the node's own ranges
//	}
//
// An unknown key is refused: a misspelt key must not silently change who may talk to whom. Authors
// of pods request labels with CNI_ARGS (WEIR_LABELS=app=web,tier=1), with args.cni.labels
// ([{"key":..., "value":...}]) and with Kubernetes' pod annotations of the form weir.labels/KEY.
// They cannot change labels of the configuration.
//
// # Errors
//
// Every failure is a CNI error object. It has a code of the specification or one of this package,
// what failed as the message, and what to do about it as the details.
package cni
