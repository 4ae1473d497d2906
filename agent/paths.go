package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/weirnet/weir/agent/peers"
	"github.com/weirnet/weir/overlay"
)

// Paths are the files and directories of a node. Several nodes can run on one machine, each with
// its own root and bpffs.
type Paths struct {
	Root  string // put in front of every path; "" for the machine's own node
	Bpffs string // directory of the pins; "" for sys/fs/bpf/weir below Root
}

// Settings is the optional settings file.
func (p Paths) Settings() string { return p.at("etc/weir/weir.toml") }

// Rules is the rule file of the owner. Weir reads it and never writes it.
func (p Paths) Rules() string { return p.at("etc/weir/rules") }

// Run is the directory of the socket.
func (p Paths) Run() string { return p.at("run/weir") }

// Socket is where the local API listens, for root.
func (p Paths) Socket() string { return filepath.Join(p.Run(), "weir.sock") }

// ReadSocket is the read-only socket for group weir.
func (p Paths) ReadSocket() string { return filepath.Join(p.Run(), "read.sock") }

// State is the directory of the files that outlive the agent.
func (p Paths) State() string { return p.at("var/lib/weir") }

// Saved is the rule set of the last change, as the agent wrote it.
func (p Paths) Saved() string { return filepath.Join(p.State(), "rules.saved") }

// Pods is the directory of the records of containers.
func (p Paths) Pods() string { return filepath.Join(p.State(), "pods") }

// Services is the record of services.
func (p Paths) Services() string { return filepath.Join(p.State(), "services.json") }

// Docker is where dockerd looks for a network driver named weir.
func (p Paths) Docker() string { return p.at("run/docker/plugins/weir.sock") }

// DockerNetworks has the labels of Docker's networks. It stays after Down, like the networks.
func (p Paths) DockerNetworks() string { return filepath.Join(p.State(), "docker-networks.json") }

// Pins is the directory of the pinned eBPF objects.
func (p Paths) Pins() string {
	if p.Bpffs != "" {
		return p.Bpffs
	}
	return p.at("sys/fs/bpf/weir")
}

func (p Paths) at(path string) string { return filepath.Join("/", p.Root, path) }

// removeEmpty removes a directory if nothing else is in it, and then, below a root of the node's
// own, the directories above it that are empty now.
func (p Paths) removeEmpty(dir string) error {
	root := filepath.Join("/", p.Root)
	for dir != root {
		left, err := os.ReadDir(dir)
		if err == nil && len(left) > 0 {
			return nil
		}
		if err == nil {
			err = os.Remove(dir)
		}
		if errors.Is(err, syscall.EBUSY) { // a mount of the service manager for this process
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if p.Root == "" {
			return nil
		}
		dir = filepath.Dir(dir)
	}
	return nil
}

// eventsDir is where the journal lies.
func (p Paths) eventsDir() string { return filepath.Join(p.State(), "events") }

// Sysctls is the record of the kernel's settings before Weir.
func (p Paths) Sysctls() string { return filepath.Join(p.State(), "sysctls.json") }

// Store is the directory of a cluster host's copy of the store, and of its certificate and key.
func (p Paths) Store() string { return filepath.Join(p.State(), "store") }

// Admin is the credential of the administrator, on a host that has one.
func (p Paths) Admin() string { return p.at("etc/weir/admin.pem") }

// mountPoint is where a bpf file system has to be mounted when the pins' directory is not on one.
func (p Paths) mountPoint() string {
	if p.Bpffs != "" {
		return filepath.Clean(p.Bpffs)
	}
	return filepath.Dir(p.Pins())
}

// Key is the private key of this node for the tunnel.
func (p Paths) Key() string { return filepath.Join(p.State(), "key") }

// Timestamps has the latest handshake timestamp of that key.
func (p Paths) Timestamps() string { return filepath.Join(p.State(), "handshakes") }

// Peers is the record of the other nodes.
func (p Paths) Peers() string { return filepath.Join(p.State(), "peers.json") }

// WG is the directory in which wg(8) looks for sockets of interfaces.
func (p Paths) WG() string { return p.at(overlay.DefaultUAPI) }

func (p Paths) peerFiles() peers.Files {
	return peers.Files{Record: p.Peers(), Key: p.Key(), Timestamps: p.Timestamps(), UAPI: p.WG()}
}
