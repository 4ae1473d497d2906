// Package dns is the name server of a node's pods. It listens on the gateway addresses of the pod
// ranges and answers the pods of the node only:
//
//	web.weir              addresses of the pod called web
//	web.app.label.weir    addresses of the pods with the label app=web, unless another label could
//	                      have this name (labelName)
//	PTR                   the name of the pod with an address of the ranges
//
// Queries for names outside of weir and of the ranges are forwarded unchanged to the resolvers of
// the host. Only the node's own pods have names. A name exists before its pod can send, and is
// removed before another pod can get its addresses. An answer takes one map look-up for any number
// of pods.
//
// The number of forwarded queries, in total and of one pod, of connections, and of addresses in an
// answer is limited. Requests beyond a limit are dropped and counted, so a pod that floods affects
// only itself.
package dns
