// Package agent wires the other packages into a node, and is the only package that imports all of
// them. A Node makes its parts, connects them, and orders how they start and stop; the rest is in
// the parts.
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
// function, and newNode (wire.go) fills it in. Each part has its settings and its locks.
//
// Below the parts are agent/engines, which passes to the kernel engine, and to the engine of the
// tunnel while there is one, what both have to know; agent/problem, what the status shows as wrong
// and tries again; agent/adopt, open connections without states; agent/netfilter, whether netfilter
// translates what pods send; agent/routes, agent/claim and agent/clock, small helpers; and
// agent/api, the protocol. What the kernel engine enforces is pinned, so that it keeps enforcing
// without the agent.
//
// # Without a node
//
// Package offline works on rule files and captures alone, and package rulefile reads rule files for
// both.
//
// # Lock order
//
// A goroutine that holds one of these locks takes only locks of lines below it. It never holds two
// of one line. pod.Manager's lock comes between rules.Book.mu and pods.labels.mu; the locks inside
// the engines, the hub, the journal, the names of pods and the device are taken last.
//
//	peers.Service.file     the record of peers on the disk
//	peers.Service.mu       changes of peers; held while the tunnel is made and peers are resolved
//	watch.Observer.mu      the journal and top; names are looked up under it
//	watch.addressNames.mu  names of addresses of this second
//	watch.history.mu       counts of the last hour; the text of rules is looked up under it
//	cluster.Service.writing  the disk with the copy of the store; nothing waits for it
//	cluster.Service.mu     the copy of the store, and what other parts have to get of it
//	services.Service.mu    the services and the health of their pods
//	rules.Book.mu          changes of the rules, and views of them
//	rules.savedRules.mu    the file of the saved rules
//	rules.lists.copying    a copy of a list file while it is written
//	sharedTables.mu        tables that all hosts have
//	pods.labels.mu         tables of labels
//	host.Hooks.following   one pass over the interfaces at a time
//	host.Hooks.mu          hooks
//	netfilter.Watcher.mu   what netfilter translates
//	host.Links.mu          interfaces and addresses
//	Node.mu, problem.List.mu, pods.Service.mu, watch.Captures.mu, peers.injector.mu, dialed.mu,
//	pods.resolvers.mu, nat.Service.mu
package agent
