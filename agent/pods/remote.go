package pods

import (
	"context"
	"errors"
	"net/netip"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/cni"
	"github.com/weirnet/weir/pod"
)

// Remote is a node as plugins of container runtimes see it, through its API.
type Remote struct{ client *api.Client }

// NewRemote returns the node behind a client.
func NewRemote(c *api.Client) Remote { return Remote{c} }

// Attach gives a container its network.
func (r Remote) Attach(ctx context.Context, spec pod.Spec) (cni.Reply, error) {
	var p api.Pod
	if err := r.post(ctx, "/v1/pods", spec, &p); err != nil {
		return cni.Reply{}, err
	}
	return replyOf(p), nil
}

// replyOf turns the API's answer into a runtime's.
func replyOf(p api.Pod) cni.Reply {
	return cni.Reply{HostIf: p.HostIf, HostMAC: p.HostMAC, InnerIf: p.InnerIf, MAC: p.MAC,
		MTU: p.MTU, Addrs: p.Addrs, Gateways: p.Gateways, Nameservers: p.Nameservers}
}

// Detach takes a container's network away.
func (r Remote) Detach(ctx context.Context, container, ifName string) error {
	return r.post(ctx, "/v1/pods/detach",
		api.Detach{Container: container, IfName: ifName, NoWait: true}, &api.Done{})
}

// Check compares a container's network with what Attach made and with the addresses that its
// runtime knows.
func (r Remote) Check(ctx context.Context, container, ifName string, addrs []netip.Addr) error {
	return r.post(ctx, "/v1/pods/check",
		api.Check{Container: container, IfName: ifName, Addrs: addrs}, &api.Done{})
}

// Attached reports whether there is anything of a container's network.
func (r Remote) Attached(ctx context.Context, container, ifName string) (bool, error) {
	var a api.IsAttached
	err := r.post(ctx, "/v1/pods/attached", api.Attached{Container: container, IfName: ifName}, &a)
	return a.Attached, err
}

// GC detaches all of a network but the named attachments.
func (r Remote) GC(ctx context.Context, network string, attachments []string) error {
	return r.post(ctx, "/v1/pods/gc", api.GC{Network: network, Attachments: attachments},
		&api.Done{})
}

// Status reports whether a container could be attached now.
func (r Remote) Status(ctx context.Context) error {
	var s api.Status
	if err := r.client.Get(ctx, "/v1/status", &s); err != nil {
		return tryAgain(err)
	}
	if !s.Pods {
		return errNotReady
	}
	return nil
}

func (r Remote) post(ctx context.Context, path string, request, answer any) error {
	return tryAgain(r.client.Post(ctx, path, request, answer))
}

// tryAgain marks what passes: that the node is not there or does not answer, or cannot do that yet.
func tryAgain(err error) error {
	switch {
	case errors.Is(err, api.ErrNoNode), errors.Is(err, api.ErrSilent):
		return temporary{err}
	case errors.Is(err, api.ErrLater):
		return busy{err}
	}
	return err
}

type busy struct{ error }

func (busy) Is(target error) bool { return target == cni.ErrBusy }
func (b busy) Unwrap() error      { return b.error }

type temporary struct{ error }

func (temporary) Temporary() bool { return true }
func (t temporary) Unwrap() error { return t.error }
