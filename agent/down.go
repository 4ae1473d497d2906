package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/dirlock"
	"github.com/weirnet/weir/agent/host"
	"github.com/weirnet/weir/agent/peers"
	"github.com/weirnet/weir/agent/rules"
	"github.com/weirnet/weir/agent/services"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/atomicfile"
	"github.com/weirnet/weir/pod"
)

// serveDown asks the node to stop and to remove every trace, and waits until that is done. With
// ?keep=1 its files stay.
func (n *Node) serveDown(w http.ResponseWriter, r *http.Request) {
	api.WriteAnswer(w, func() (api.Done, error) { return n.down(r.URL.Query().Get("keep") == "1") })
}

func (n *Node) down(keep bool) (api.Done, error) {
	n.mu.Lock()
	again := n.leaving
	n.leaving, n.keeping = true, keep || again && n.keeping
	n.mu.Unlock()
	if again {
		return api.Done{}, &api.Error{Message: "the node is stopping already",
			Advice: "wait until weir status finds no node"}
	}
	close(n.downRequested)
	return api.Done{Version: api.Version}, <-n.downResult
}

func (n *Node) isLeaving() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaving
}

// remove ends enforcement and takes away what the node keeps, but for the socket, on which a client
// waits for the answer.
func (n *Node) remove() error {
	// The API is answered until the end: a request would bring back what is taken away.
	n.pods.EndChanges()
	n.services.Close()
	n.mu.Lock()
	keep := n.keeping
	n.mu.Unlock()
	return errors.Join(n.peers.Close(), n.rules.Close(),
		removeTraces(n.config.Paths, keep, n.unlockPins))
}

// removeRun takes away the socket's directory.
func (n *Node) removeRun() error { return removeRun(n.config.Paths) }

// Down removes all traces of a node whose agent does not run: hooks, pins and files. With keep, the
// files in the state directory that the next start uses stay. It returns an error if an agent is
// running; then send the request to that agent.
func Down(p Paths, keep bool) error {
	var held dirlock.Locks
	defer func() { held.Release() }()
	for _, one := range []struct {
		dir string
		by  func(string) (*dirlock.Lock, error)
	}{{p.Run(), dirlock.AcquireByFile}, {p.Pins(), dirlock.Acquire}} {
		l, err := one.by(one.dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		held = append(held, l)
	}
	return errors.Join(removeTraces(p, keep, func() { held.ReleaseOne(p.Pins()) }), removeRun(p))
}

// removeTraces detaches everything, unpins everything, opens what the last resort has closed and
// deletes the saved rules. What is not there is fine. unlockPins releases the lock on the pins'
// directory, which would keep their file system busy.
func removeTraces(p Paths, keep bool, unlockPins func()) error {
	errs := []error{pod.Remove(p.Pods()), peers.RemoveTraces(p.peerFiles(), keep, p.removeEmpty),
		services.RemoveTraces(p.Services(), keep), host.RestoreSysctls(p.Sysctls()),
		host.RemoveFwdRouting()}
	if err := kernel.Remove(p.Pins()); err != nil {
		errs = append(errs, fmt.Errorf("remove the pinned objects: %w", err))
	}
	if err := kernel.UnblockAll(); err != nil {
		errs = append(errs, fmt.Errorf("remove the last resort: %w", err))
	}
	unlockPins()
	errs = append(errs, removePins(p))
	if keep {
		return errors.Join(append(errs, sweepState(p))...)
	}
	errs = append(errs, atomicfile.Remove(rules.PanicFile(p.Saved())), atomicfile.Remove(p.Saved()),
		atomicfile.Remove(p.Saved()+".old"), os.RemoveAll(p.eventsDir()), os.RemoveAll(p.Store()),
		removeLeftovers(p))
	return errors.Join(append(errs, p.removeEmpty(p.State()))...)
}

// removeLeftovers takes away what crashes have left in the state directory, and damaged files that
// were set aside: some hold keys.
func removeLeftovers(p Paths) error {
	errs := []error{sweepState(p)}
	for _, name := range []string{"*.damaged-*", "*.newer-*", "table-*.txt"} {
		files, err := filepath.Glob(filepath.Join(p.State(), name))
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, atomicfile.Remove(f))
		}
	}
	return errors.Join(errs...)
}

// sweepState removes temporary files of crashes. No other process may work in the state directory.
func sweepState(p Paths) error { return atomicfile.RemoveLeftovers(p.State()) }

func removeRun(p Paths) error {
	return errors.Join(atomicfile.Remove(p.Socket()), atomicfile.Remove(p.ReadSocket()),
		atomicfile.Remove(p.Docker()), atomicfile.Remove(filepath.Join(p.Run(), dirlock.FileName)),
		p.removeEmpty(p.Run()))
}

// removePins takes the directory of the pins away, and what only their mount needed.
func removePins(p Paths) error {
	unmounted, err := host.RemovePins(p.Pins(), p.mountPoint())
	if err != nil || !unmounted || p.Root == "" && p.Bpffs == "" {
		return err // the mount point is the system's
	}
	return p.removeEmpty(p.mountPoint())
}
