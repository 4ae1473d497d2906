package nstest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/internal/nl"
)

// netnsDir is where ip-netns(8) keeps named namespaces, so that it finds ours.
const netnsDir = "/run/netns"

// Node is one network namespace of a Lab.
type Node struct {
	label string
	name  string // in netnsDir
	ns    *nl.NS
	conn  *nl.Conn
	t     TB
}

func newNode(label string) (*Node, error) {
	name, err := ownName(label)
	if err != nil {
		return nil, err
	}
	n := &Node{label: label, name: name}
	if err := createNS(n.Path()); err != nil {
		return nil, err
	}
	if err := n.setUp(); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// createNS makes a network namespace and keeps it alive under path.
func createNS(path string) error {
	if err := shareDir(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	f.Close()
	done := make(chan error)
	go func() {
		// never unlocked: the thread ends with this goroutine, and with it its place in the new
		// namespace
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return fmt.Errorf("unshare: %w", err)
			}
			if err := unix.Mount("/proc/thread-self/ns/net", path, "none", unix.MS_BIND,
				""); err != nil {
				return fmt.Errorf("mount %s: %w", path, err)
			}
			return nil
		}()
	}()
	if err := <-done; err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// shareDir makes the directory of named namespaces. It makes the directory a shared mount point of
// its own before the first name is in it, as ip-netns(8) and the container runtimes do. One of them
// that did so later would put a second mount over each of our names, and the name could not be
// removed until both are gone.
func shareDir(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close() // unlocks
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	err = unix.Mount("", path, "none", unix.MS_SHARED|unix.MS_REC, "")
	if errors.Is(err, unix.EINVAL) { // not a mount point yet
		if err = unix.Mount(path, path, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
			err = unix.Mount("", path, "none", unix.MS_SHARED|unix.MS_REC, "")
		}
	}
	if err != nil {
		return fmt.Errorf("share %s: %w", path, err)
	}
	return nil
}

func (n *Node) setUp() (err error) {
	if n.ns, err = nl.OpenNS(n.Path()); err != nil {
		return err
	}
	if n.conn, err = nl.Open(n.ns); err != nil {
		return err
	}
	// Link-local addresses, too, are usable at once.
	for _, who := range []string{"all", "default"} {
		for key, value := range map[string]string{"accept_dad": "0", "dad_transmits": "0",
			"disable_ipv6": "0"} {
			if err := n.SetSysctl("net.ipv6.conf."+who+"."+key, value); err != nil {
				return err
			}
		}
	}
	lo, err := n.conn.LinkByName("lo")
	if err != nil {
		return err
	}
	return n.conn.SetLinkUp(lo.Index)
}

// String returns the label that the node was made with.
func (n *Node) String() string { return n.label }

// Name returns the name that ip-netns(8) knows the namespace by.
func (n *Node) Name() string { return n.name }

// Path returns the file of the namespace.
func (n *Node) Path() string { return filepath.Join(netnsDir, n.name) }

// NS returns the handle on the namespace. It belongs to the node and ends with it.
func (n *Node) NS() *nl.NS { return n.ns }

// Netlink returns the node's connection to rtnetlink. It belongs to the node and ends with it.
func (n *Node) Netlink() *nl.Conn { return n.conn }

// Do runs f inside the node. See nl.NS.Do for what that means for sockets, goroutines and panics.
func (n *Node) Do(f func() error) error { return n.ns.Do(f) }

// Listen is net.Listen inside the node.
func (n *Node) Listen(network, address string) (net.Listener, error) {
	return n.ns.Listen(network, address)
}

// ListenPacket is net.ListenPacket inside the node.
func (n *Node) ListenPacket(network, address string) (net.PacketConn, error) {
	return n.ns.ListenPacket(network, address)
}

// DialContext dials a numeric address from inside the node. It fits http.Transport.DialContext.
func (n *Node) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return n.ns.DialContext(ctx, network, address)
}

// AddRoute sends what goes to dst through the next hop via.
func (n *Node) AddRoute(dst netip.Prefix, via netip.Addr) error {
	return n.conn.AddRoute(nl.Route{Dst: dst, Via: via})
}

// SetSysctl sets a kernel parameter of the node, for example net.ipv4.ip_forward. Interface names
// with dots in them are written with slashes, as sysctl(8) has it.
func (n *Node) SetSysctl(key, value string) error {
	path := "/proc/sys/" + strings.NewReplacer(".", "/", "/", ".").Replace(key)
	return n.Do(func() error { return os.WriteFile(path, []byte(value), 0) })
}

// Command prepares a program that will run inside the node when Run, Start, Output or
// CombinedOutput is called. When the lab closes while the program runs, the program is killed.
func (n *Node) Command(name string, args ...string) *Cmd {
	return n.CommandContext(context.Background(), name, args...)
}

// CommandContext is Command with a context that kills the program when it ends.
func (n *Node) CommandContext(ctx context.Context, name string, args ...string) *Cmd {
	return &Cmd{Cmd: exec.CommandContext(ctx, name, args...), node: n}
}

// Cmd is an exec.Cmd that starts inside a node.
type Cmd struct {
	*exec.Cmd
	node *Node
}

// Start starts the program inside the node.
func (c *Cmd) Start() error {
	if err := c.node.Do(c.Cmd.Start); err != nil {
		return fmt.Errorf("%s: %w", c.node, err)
	}
	return nil
}

// Run starts the program inside the node and waits for its end.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program inside the node and returns what it wrote to its standard output.
func (c *Cmd) Output() (out []byte, err error) {
	// exec.Cmd.Output starts and waits; the waiting holds the thread in the namespace, which does
	// no harm.
	err = c.node.Do(func() error { out, err = c.Cmd.Output(); return err })
	return out, err
}

// CombinedOutput runs the program inside the node and returns all that it wrote.
func (c *Cmd) CombinedOutput() (out []byte, err error) {
	err = c.node.Do(func() error { out, err = c.Cmd.CombinedOutput(); return err })
	return out, err
}

// close removes the node, even one that was only half made.
func (n *Node) close() error {
	if n.conn != nil {
		n.conn.Close()
	}
	var errs []error
	if n.ns != nil {
		errs = append(errs, n.ns.Close())
	}
	return errors.Join(append(errs, removeNS(n.Path()))...)
}
