package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Where a pod's pair is a netkit, what the pod sends is evaluated while it is sent, in the context
// of its sender. It goes to NICs and other pods without waiting in the host end's queue. The hooks
// of the host end stay as they are: they evaluate what goes to the pod, and all that comes to the
// host end in another way. So without this program, and until it is attached, packets are only
// slower.

func (e *Engine) netkitPath(index uint32) string {
	return filepath.Join(e.dir, fmt.Sprintf("netkit-%d", index))
}

// followPeerLocked attaches to the inner end of a pod's netkit, or lets it go when its host end
// is another interface's or lacks a hook. It follows each change of these.
func (e *Engine) followPeerLocked(index uint32) error {
	a := e.links[index]
	if a == nil {
		return nil
	}
	if e.endpoints[index].Limited&limitedNetkit == 0 || a.half() {
		return e.dropPeer(a)
	}
	if a.peer != nil {
		return nil
	}
	if err := e.needLocked("weir_in_netkit"); err != nil {
		return err
	}
	l, err := link.AttachNetkit(link.NetkitOptions{
		Interface: int(index), Program: e.objects.WeirInNetkit, Attach: ebpf.AttachNetkitPeer,
		Anchor: link.Head(),
	})
	if gone(err) || errors.Is(err, unix.ENXIO) { // the pod is gone, another interface has the index
		return nil
	}
	if err != nil {
		return fmt.Errorf("attach to the inner end of interface %d, a netkit: %w", index, err)
	}
	a.peer = l
	if e.dir == "" {
		return nil
	}
	path := e.netkitPath(index)
	if err = removeIfThere(path); err == nil { // of an interface that had this index before
		err = l.Pin(path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("pin the link of the netkit %d: %w", index, err),
			e.dropPeer(a))
	}
	return nil
}

// followPeersLocked does so for all pods.
func (e *Engine) followPeersLocked() error {
	var errs []error
	for index := range e.endpoints {
		errs = append(errs, e.followPeerLocked(index))
	}
	return errors.Join(errs...)
}

// openPeer opens what is pinned of an inner end. One that is gone is followed by Attach.
func (e *Engine) openPeer(a *attachment) error {
	path := e.netkitPath(a.index)
	l, err := link.LoadPinnedLink(path, nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info, err := l.Info()
	if err != nil {
		return errors.Join(err, l.Close())
	}
	// the index is counted in the pod's namespace; 0: the pair is gone
	if n := info.Netkit(); n == nil || n.Ifindex == 0 {
		return errors.Join(l.Close(), removeIfThere(path))
	}
	a.peer = l
	return nil
}

// takePeerLocked gives the link at an inner end, which an earlier engine made, the current program.
func (e *Engine) takePeerLocked(a *attachment, ids programIDs) error {
	if a.peer == nil {
		return nil
	}
	err := e.needLocked("weir_in_netkit")
	if err == nil {
		err = ids.update(a.peer, e.objects.WeirInNetkit)
	}
	if err != nil {
		return fmt.Errorf("update the program at the inner end of interface %d: %w", a.index, err)
	}
	return nil
}

// dropPeer lets the inner end go.
func (e *Engine) dropPeer(a *attachment) error {
	if a.peer == nil {
		return nil
	}
	var errs []error
	if e.dir != "" {
		errs = append(errs, removeIfThere(e.netkitPath(a.index)))
	}
	return errors.Join(append(errs, a.closePeer(true))...)
}

func (a *attachment) closePeer(detach bool) error {
	if a.peer == nil {
		return nil
	}
	var errs []error
	if detach {
		if err := a.peer.Detach(); err != nil && !errors.Is(err, os.ErrNotExist) && !gone(err) {
			errs = append(errs, fmt.Errorf("detach from the inner end of interface %d: %w",
				a.index, err))
		}
	}
	errs = append(errs, a.peer.Close())
	a.peer = nil
	return errors.Join(errs...)
}

// removePeers detaches all inner ends that are pinned below dir. Their engine evaluates the packets
// at the host ends from then on.
func removePeers(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "netkit-*"))
	for _, p := range paths {
		err = errors.Join(err, removeLink(p))
	}
	return err
}
