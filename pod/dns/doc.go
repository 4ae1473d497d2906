// Package dns is the name server of a node's pods. It listens on the gateway addresses of the pod
// ranges and answers the pods of the node only:
//
//	web.weir              addresses of the pod called web
//	web.app.label.weir    addresses of the pods with the label app=web, unless another label could
//	                      have this name (labelName)
//	PTR                   the name of the pod with an address of the ranges
//
// What is outside of weir and of the ranges goes to the resolvers of the host, as it is. Names are
// those of the node's own pods. They are known before a pod can send, and forgotten before another
// pod can get its addresses. An answer takes a look-up in a map, whatever the number of pods.
//
// Everything is bounded: queries on their way to a resolver, of all pods and of one, connections,
// and the addresses in an answer. What is too much is dropped and counted, so that a pod that
// floods hurts itself.
package dns
