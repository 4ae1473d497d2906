package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/pod"
)

// remove ends enforcement and takes away what the node keeps, but for the socket, on which somebody waits for the answer.
func (n *Node) remove() error {
	if n.pods.Load() != nil {
		n.pods.Load().manager.Wait()
	}
	return errors.Join(n.peers.close(), n.book.close(), removeTraces(n.config.Paths))
}

// removeRun takes away the socket's directory.
func (n *Node) removeRun() error { return removeRun(n.config.Paths) }

// Down removes every trace of a node whose agent does not run: hooks, pins and files. It returns an error when an agent is
// at work; ask that one.
func Down(p Paths) error {
	for dir, claim := range map[string]func(string) (*lock, error){p.Run(): lockIn, p.Pins(): lockDir} {
		l, err := claim(dir)
		if err == nil {
			defer l.release()
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return errors.Join(removeTraces(p), removeRun(p))
}

// removeTraces detaches everything, unpins everything and deletes the saved rules. What is not there is fine.
func removeTraces(p Paths) error {
	errs := []error{pod.Remove(p.Pods()), removePeers(p)}
	if err := kernel.Remove(p.Pins()); err != nil {
		errs = append(errs, fmt.Errorf("remove the pinned objects: %w", err))
	}
	errs = append(errs, removePins(p))
	for _, file := range []string{p.Saved(), p.Saved() + ".old"} {
		errs = append(errs, removeFile(file))
	}
	errs = append(errs, os.RemoveAll(p.eventsDir()))
	return errors.Join(append(errs, p.removeEmpty(p.State()))...)
}

func removeRun(p Paths) error {
	return errors.Join(removeFile(p.Socket()), removeFile(filepath.Join(p.Run(), lockName)), p.removeEmpty(p.Run()))
}

func removeFile(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
