// Package cni is the wire of the Container Network Interface: environment and standard input in, a
// result or an error object out. It decides nothing: it checks and translates what a runtime asks,
// and hands it to the node's agent.
//
// It speaks specification 1.1.0, 1.0.0 and 0.4.0 with the verbs ADD, DEL, CHECK, GC, STATUS and
// VERSION.
//
// # Configuration
//
//	{
//	  "cniVersion": "1.0.0", "name": "weir", "type": "weir-cni",
//	  "capabilities": {"portMappings": true, "bandwidth": true, "ips": true, "mac": true, "io.kubernetes.cri.pod-annotations": true},
//	  "labels": {"app": "web"},            labels of every pod of this network: table(app=web) in rules
//	  "podLabels": ["team.*"],             keys that a pod's author may set; without it none
//	  "mtu": 1500,                         default: the node's
//	  "root": "/",                         the agent's --root
//	  "ipam": {"type": "host-local", ...}  default: addresses from the node's own ranges
//	}
//
// A key that is not known is refused: a misspelt key must not silently change who may talk to whom.
// Authors of pods ask for labels by CNI_ARGS (WEIR_LABELS=app=web,tier=1), by args.cni.labels
// ([{"key":..., "value":...}]) and by Kubernetes' pod annotations of the form weir.labels/KEY;
// labels of the configuration stand whatever they say.
//
// # Errors
//
// Every failure is a CNI error object: a code of the specification or one of this package, a
// message that says what failed, and details that say what to do.
package cni
