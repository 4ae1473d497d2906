// Package agent connects the other packages to a node, and is the only package that imports all of
// them. A Node makes its parts, connects them, and starts and stops them in order. All other code
// is in the parts.
//
// # The parts
//
//	agent/rules  the rules in force, trials, the saved rules, commands, why
//	agent/host   interfaces, hooks, routes, kernel settings, the mount of the pins
//	agent/pods   the network of containers: attach, labels, published ports, drivers of runtimes
//	agent/services  addresses and ports that lead to the pods of a label
//	agent/nat    forwarded ports and source NAT for others behind the host
//	agent/peers  the other nodes: their record, the tunnel to them, routes
//	agent/cluster  the desired state of a cluster: the copy, what follows from it, own news
//	agent/watch  events and their history, captures, metrics, states, the watchdog
//
// No part imports another one. What a part needs of others is in its Config, as an interface or a
// function, which newNode (wire.go) sets. Each part has its settings and its locks.
//
// The parts share these packages. agent/engines passes each change to the kernel engine and, if
// there is one, to the engine of the tunnel. agent/problem holds the problems that the status
// shows, and retries. agent/adopt makes states for open connections. agent/netfilter detects
// whether netfilter translates packets of pods. agent/routes, agent/dirlock and agent/clock are
// small helpers, and agent/api is the protocol. The maps and programs of the kernel engine are
// pinned, so it enforces the rules without the agent.
//
// # Without a node
//
// Package offline evaluates rule files and captures without a node. Package rulefile reads rule
// files for both.
//
// # Lock order
//
// A goroutine that holds one of these locks may take only locks on lines below it, and never holds
// two locks of one line. pod.Manager's lock comes between rules.Manager.mu and pods.labels.mu; the
// locks inside the engines, the hub, the journal, the names of pods and the device are taken last.
//
//	peers.Service.file     the record of peers on the disk
//	peers.Service.mu       changes of peers; held while the tunnel is made and peers are resolved,
//	                       not while connections to a peer are cut
//	watch.Observer.mu      the journal and top; names are looked up under it
//	watch.addressNames.mu  names of addresses of this second
//	watch.history.mu       counts of the last hour; the text of rules is looked up under it
//	cluster.Service.writing  the disk with the copy of the store; nothing waits for it
//	cluster.Service.mu     the copy of the store, and what other parts have to get of it
//	services.Manager.mu    the services and the health of their pods
//	netfilter.Watcher.mu   what netfilter translates; pods are listed under it
//	rules.Manager.mu       changes of the rules, and views of them
//	rules.savedRules.mu    the file of the saved rules
//	rules.lists.copying    a copy of a list file while it is written
//	cluster.SharedTables.mu  tables that all hosts have
//	pods.labels.mu         tables of labels
//	host.Hooks.following   one pass over the interfaces at a time
//	host.Hooks.mu          hooks
//	host.Stack.mu          IPsec policies and routing rules
//	host.Links.mu          interfaces and addresses
//	Node.mu, problem.List.mu, pods.Service.mu, watch.Captures.mu, peers.injector.mu,
//	cluster.dialer.mu, pods.resolvers.mu, nat.Service.mu, perUser.mu,
//	api.streams.mu
package agent
