// Package agent wires the other packages into a node, and is the only package that imports all of
// them. A Node brings rules, tables, interfaces and open connections together in the engines,
// follows what changes on the host, and answers the local API.
//
// # Who owns what
//
// The kernel engine enforces, and what it enforces is pinned, so that it keeps enforcing without
// the agent. engines passes to it, and to the engine of the tunnel while there is one, what both
// have to know. The rulebook owns the rules: every change goes through it, one at a time, is
// compiled first, and is either wholly in force and saved or not made. links holds the host's
// interfaces and addresses; the Node attaches hooks as interfaces come and go. pods gives
// containers their network through pod.Manager. peers owns the tunnel and the record of the other
// nodes. The observer turns events into views.
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
// the engines, the hub, the journal and the device are taken last.
//
//	peers.mu          changes of peers; held while the tunnel is made and peers are resolved
//	watch.Observer.mu       the journal and top; names are looked up under it
//	watch.addressNames.mu  names of addresses of this second
//	rules.Book.mu     changes of the rules, and views of them
//	rules.savedRules.mu  the file of the saved rules
//	pods.labels.mu  tables of labels
//	host.Hooks.following  one pass over the interfaces at a time
//	host.Hooks.mu  hooks
//	host.Links.mu  interfaces and addresses
//	Node.mu, problem.List.mu, pods.Service.mu, watch.Captures.mu, injector.mu
package agent
