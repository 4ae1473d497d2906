package pods

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/cni/docker"
	"github.com/weirnet/weir/internal/unixsocket"
	"github.com/weirnet/weir/pod"
)

const (
	headerTime = 10 * time.Second // for dockerd to send a header
	idleTime   = 60 * time.Second // for a connection between two requests
)

// dockerTime is how long requests of dockerd may take to end with the node.
const dockerTime = 5 * time.Second

// dockerNode is the node as Docker's driver sees it: the same requests as those of the API, without
// its socket. Errors keep their types.
type dockerNode struct{ pods *Service }

var _ docker.Node = dockerNode{}

// Attach implements cni.Agent.
func (d dockerNode) Attach(ctx context.Context, spec pod.Spec) (cni.Reply, error) {
	p, err := d.pods.Attach(ctx, spec)
	if err != nil {
		return cni.Reply{}, err
	}
	return replyOf(p), nil
}

// Detach implements cni.Agent.
func (d dockerNode) Detach(ctx context.Context, container, ifName string) error {
	_, err := d.pods.Detach(ctx, api.Detach{Container: container, IfName: ifName, NoWait: true})
	return err
}

// Check implements cni.Agent.
func (d dockerNode) Check(_ context.Context, container, ifName string, addrs []netip.Addr) error {
	return d.pods.manager.Load().Check(container, ifName, addrs)
}

// Attached implements cni.Agent.
func (d dockerNode) Attached(_ context.Context, container, ifName string) (bool, error) {
	return d.pods.manager.Load().Holds(container, ifName), nil
}

// GC implements cni.Agent.
func (d dockerNode) GC(ctx context.Context, network string, attachments []string) error {
	_, err := d.pods.GC(ctx, api.GC{Network: network, Attachments: attachments})
	return err
}

// Status implements cni.Agent.
func (d dockerNode) Status(context.Context) error { return nil }

// Reserve implements docker.Node.
func (d dockerNode) Reserve(a netip.Addr) (netip.Addr, error) {
	return d.pods.manager.Load().Reserve(a)
}

// Unreserve implements docker.Node.
func (d dockerNode) Unreserve(a netip.Addr) { d.pods.manager.Load().Unreserve(a) }

func (d dockerNode) Ranges() []docker.Range {
	var list []docker.Range
	for _, r := range d.pods.manager.Load().Ranges() {
		list = append(list, docker.Range{Prefix: r.Prefix, Gateway: r.Gateway})
	}
	return list
}

// ServeDocker answers dockerd where it looks for a plugin named weir. stop ends it and removes the
// socket. While the pods of an earlier run are not taken over it fails, and is to be tried again.
func (s *Service) ServeDocker() (stop func() error, err error) {
	const unranged = "docker = true has no effect without [pods] ranges"
	if len(s.config.Settings.Ranges) == 0 || !s.config.Settings.Docker {
		if s.config.Settings.Docker {
			s.config.Problems.Add(unranged, "set ranges in [pods] of weir.toml, or join a cluster")
		}
		return func() error { return nil }, nil
	}
	s.config.Problems.Solved(unranged)
	if s.manager.Load() == nil {
		return nil, errLater
	}
	socket := s.config.Socket
	if err := os.MkdirAll(filepath.Dir(socket), 0o755); err != nil {
		return nil, fmt.Errorf("listen for dockerd: %w", err)
	}
	var l net.Listener
	if l, err = unixsocket.Listen(socket); err != nil {
		return nil, fmt.Errorf("listen for dockerd: %w", err)
	}
	node := dockerNode{s}
	requests, cancel := context.WithCancel(context.Background())
	server := http.Server{BaseContext: func(net.Listener) context.Context { return requests },
		Handler: docker.New(node, s.config.Networks).Handler(), ReadHeaderTimeout: headerTime,
		IdleTimeout: idleTime}
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.config.Problems.Add("dockerd is not served any more: "+err.Error(),
				"restart the agent: systemctl restart weir")
		}
	}()
	return func() error {
		cancel() // an attach under way is rolled back, and waited for
		ctx, done := context.WithTimeout(context.Background(), dockerTime)
		defer done()
		if server.Shutdown(ctx) != nil {
			return server.Close()
		}
		return nil
	}, nil
}
