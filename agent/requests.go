package agent

import (
	"errors"
	"net/http"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/watch"
)

// serveDown asks the node to stop and to remove every trace, and waits until that is done. With
// ?keep=1 its files stay.
func (n *Node) serveDown(w http.ResponseWriter, r *http.Request) {
	api.Reply(w, func() (api.Done, error) { return n.down(r.URL.Query().Get("keep") == "1") })
}

func (n *Node) down(keep bool) (api.Done, error) {
	n.mu.Lock()
	again := n.leaving
	n.leaving, n.keeping = true, keep || again && n.keeping
	n.mu.Unlock()
	if again {
		return api.Done{}, errors.New("the node is going down already")
	}
	close(n.downRequested)
	return api.Done{Version: api.Version}, <-n.downResult
}

func (n *Node) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving
}

// reload reads the rule file again.
func (n *Node) reload() error {
	watch.Notify("RELOADING=1")
	defer watch.Notify("READY=1")
	return n.rules.Reload()
}
