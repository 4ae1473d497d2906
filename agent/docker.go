package agent

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/cni/docker"
	"github.com/weirnet/weir/internal/unixsocket"
)

// dockerNode is the node as Docker's driver sees it.
type dockerNode struct {
	Remote
	pods *pods
}

func (d dockerNode) Reserve(a netip.Addr) (netip.Addr, error) { return d.pods.manager.Reserve(a) }
func (d dockerNode) Unreserve(a netip.Addr)                   { d.pods.manager.Unreserve(a) }

func (d dockerNode) Ranges() []docker.Range {
	var list []docker.Range
	for _, r := range d.pods.manager.Ranges() {
		list = append(list, docker.Range{Prefix: r.Prefix, Gateway: r.Gateway})
	}
	return list
}

// serveDocker answers dockerd where it looks for a plugin named weir. stop ends it and removes the
// socket.
func (n *Node) serveDocker() (stop func() error, err error) {
	if n.pods.Load() == nil || !n.config.Settings.Pods.Docker {
		return func() error { return nil }, nil
	}
	socket := n.config.Paths.Docker()
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("listen for dockerd: %w", err)
	}
	var l net.Listener
	if l, err = unixsocket.Listen(socket); err != nil {
		return nil, fmt.Errorf("listen for dockerd: %w", err)
	}
	node := dockerNode{NewRemote(api.NewClient(n.config.Paths.Socket())), n.pods.Load()}
	s := http.Server{Handler: docker.New(node).Handler(), ReadHeaderTimeout: headerTime,
		IdleTimeout: idleTime}
	go func() {
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.problem("dockerd is not answered any more: "+err.Error(), "restart the node")
		}
	}()
	return s.Close, nil
}
