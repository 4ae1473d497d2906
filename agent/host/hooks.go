package host

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
	"github.com/weirnet/weir/firewall"
	"github.com/weirnet/weir/firewall/kernel"
	"github.com/weirnet/weir/internal/nl"
)

// RetryEvery is how often an interface is tried again that cannot be guarded.
const RetryEvery = 5 * time.Second

// Engine is what Hooks and Routes need of the engines.
type Engine interface {
	SetInterfaces([]firewall.Interface) error
	SetUppers([]kernel.Upper) error
	SetRoutes([]firewall.Route) error
	SetRouteMTUs([]kernel.RouteMTU) error
	SetNextHops([]kernel.NextHop) error
	SetQdiscLinks(indexes []uint32) error
	SetStack(routing bool, policies []kernel.Policy) error
	Attach(index uint32) (hook string, err error)
	Detach(index uint32) error
	// Hooked returns the indexes of the interfaces that have hooks or had them before they went,
	// also of an engine of another layout.
	Hooked() ([]uint32, error)
	// RemovedHooks returns the interfaces of which another program has removed a hook.
	RemovedHooks() ([]uint32, error)
	// KeepLocal puts the hook of the loopback back if another program has removed it, and reports
	// whether one has.
	KeepLocal() (removed bool, err error)
	// Foreign returns the programs of others at the hooks.
	Foreign() ([]kernel.Foreign, error)
	// Guarded reports whether the engine that was taken over had evaluated packets of an interface.
	Guarded() bool
	// FollowNAT tries again what an instance of nat could not have, and returns what it has not.
	FollowNAT() error
}

// Tunnel is the encrypted tunnel to other nodes.
type Tunnel interface {
	// IsUserTunnel reports whether the interface of a name is the tunnel's, whose own engine
	// evaluates its packets.
	IsUserTunnel(name string) bool
	// IsKernelTunnel reports whether the interface of a name is the tunnel's, whose packets the
	// hooks evaluate, whatever the settings say about interfaces.
	IsKernelTunnel(name string) bool
	// Index returns the index of the tunnel's interface, 0 if there is none.
	Index() uint32
}

// Config is what Hooks needs.
type Config struct {
	Settings Settings
	Engine   Engine
	Links    *Links
	Router   *Router
	Tunnel   Tunnel
	Log      *slog.Logger
	Problems *problem.List
}

// Hooks attaches the engine's hooks to the guarded interfaces, and detaches them from others.
type Hooks struct {
	config  Config
	behind  bool          // the last pass failed; used by the loop alone
	suspect chan struct{} // has an element when hooks may have been removed

	following sync.Mutex // its place in the lock order: agent/doc.go
	paused    bool       // guarded by following; the hooks wait
	// guarded by following; the interfaces that the engine got last; those to be guarded have hooks
	followed []firewall.Interface
	came     []string // guarded by following; interfaces of which the router does not know yet
	// guarded by following; the upper devices that the engine got last, nil for any
	uppers []kernel.Upper

	mu       sync.Mutex        // its place in the lock order: agent/doc.go
	attached map[uint32]string // guarded by mu; hook by interface index
	// guarded by mu; why an interface is not guarded although it should be, or not for good
	refused map[uint32]error
	// guarded by mu; interfaces that are not to be guarded and whose hooks could not be removed
	left map[uint32]firewall.Interface
	// guarded by mu; the programs of others that come before ours, by interface index
	before map[uint32][]api.Before
	// guarded by mu; the programs of others that the last looks found, see foreign.go
	foreign []kernel.Foreign
}

// NewHooks returns the hooks of a node that has attached none yet.
func NewHooks(c Config) *Hooks {
	return &Hooks{config: c, suspect: make(chan struct{}, 1),
		attached: map[uint32]string{}, refused: map[uint32]error{},
		left: map[uint32]firewall.Interface{}}
}

// Ping takes the locks, for the watchdog.
func (h *Hooks) Ping() {
	h.following.Lock()
	h.following.Unlock() //lint:ignore SA2001 that it can be had is all that matters
	h.mu.Lock()
	h.mu.Unlock() //lint:ignore SA2001 as above
}

// Follow follows the interfaces. A failure is shown in the status. While Incomplete reports true,
// Follow is to be called again.
func (h *Hooks) Follow() {
	const about, ports = "following the interfaces", "ports of rules with nat"
	err, held := errors.Join(h.follow(), h.join()), h.config.Engine.FollowNAT()
	h.behind = err != nil || held != nil
	if held != nil {
		h.config.Problems.Set(ports, "a port of a rule with nat is not redirected: "+
			held.Error()+"; Weir tries again", problem.Hint(held, "weir fw nat show"))
	} else {
		h.config.Problems.Solved(ports)
	}
	if err != nil {
		h.config.Problems.Set(about, "cannot follow the interfaces: "+err.Error(), "weir doctor")
		return
	}
	h.config.Problems.Solved(about)
}

// Incomplete reports whether an interface is not guarded although it should be, or a port of nat is
// held.
func (h *Hooks) Incomplete() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.behind || len(h.refused) > 0
}

// Refused returns the number of interfaces that should be guarded but are not.
func (h *Hooks) Refused() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for index := range h.refused {
		if _, on := h.attached[index]; !on {
			n++
		}
	}
	return n
}

// AddPod makes the host end of a pod known, and returns when it is guarded.
func (h *Hooks) AddPod(index uint32, name string) error {
	h.config.Links.AddPod(index, name)
	h.following.Lock()
	defer h.following.Unlock()
	if err := h.followLocked(); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.refused[index]; err != nil {
		return fmt.Errorf("guard %s: %w", name, err)
	}
	return nil
}

// AddTunnel makes the interface of the tunnel known; the kernel's own notification may come later.
// If the hooks are to evaluate its packets, they do when it returns.
func (h *Hooks) AddTunnel(link nl.Link) error {
	h.config.Links.Report(nl.Event{Kind: nl.LinkSet, Link: link})
	if err := h.follow(); err != nil || !h.config.Tunnel.IsKernelTunnel(link.Name) {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, on := h.attached[uint32(link.Index)]; !on {
		return errors.Join(fmt.Errorf("guard %s: its packets would not be evaluated", link.Name),
			h.refused[uint32(link.Index)])
	}
	return nil
}

// guards reports whether an interface gets the hooks.
func (h *Hooks) guards(name string) bool {
	t := h.config.Tunnel
	return t.IsKernelTunnel(name) || h.config.Settings.Guards(name) && !t.IsUserTunnel(name)
}

// View calls f with the interfaces that the engine has, and prevents changes meanwhile.
func (h *Hooks) View(f func([]firewall.Interface)) {
	h.following.Lock()
	defer h.following.Unlock()
	f(h.config.Links.Interfaces())
}

// follow passes the host's interfaces and addresses to the engine and attaches the hooks. It runs a
// few times for each pod that comes or goes, and there may be thousands, so it looks only at what
// has changed.
func (h *Hooks) follow() error {
	h.following.Lock() // an older list must not replace a newer one
	defer h.following.Unlock()
	return h.followLocked()
}

func (h *Hooks) followLocked() error {
	if h.paused {
		return nil
	}
	now := h.config.Links.Interfaces()
	changed, gone := firewall.DiffInterfaces(h.followed, now)
	remade := h.config.Links.takeRemade()
	if len(changed)+len(gone) > 0 {
		if err := h.config.Engine.SetInterfaces(now); err != nil {
			h.config.Links.keepRemade(remade)
			return err
		}
		h.followed = now
	}
	// Before the hooks, which the engine may have taken over. If it fails, lower devices evaluate
	// what leaves by both.
	err := h.followUppers()
	h.reattach(remade)
	for _, i := range changed {
		if t := h.config.Tunnel; !isPod(i) && !t.IsUserTunnel(i.Name) &&
			!t.IsKernelTunnel(i.Name) && !slices.Contains(h.came, i.Name) {
			h.came = append(h.came, i.Name)
		}
	}
	return errors.Join(err, h.attach(changed, gone))
}

// followUppers passes the upper devices to the engine, if they have changed.
func (h *Hooks) followUppers() error {
	all := h.config.Links.Uppers()
	if h.uppers != nil && slices.Equal(h.uppers, all) {
		return nil
	}
	h.uppers = nil
	if err := h.config.Engine.SetUppers(all); err != nil {
		return err
	}
	h.uppers = all
	return nil
}

// join tells the router of the interfaces that came or changed. It may ask the kernel about each,
// which takes seconds while that is busy: it holds no lock meanwhile, and stops when one request is
// not answered in time. The next pass tries what failed again, and then the rest.
func (h *Hooks) join() error {
	h.following.Lock()
	names := h.came
	h.came = nil
	h.following.Unlock()
	var errs []error
	var left []string
	for i, name := range names {
		err := h.config.Router.AcceptRA(name)
		if err == nil {
			continue
		}
		errs, left = append(errs, err), append(left, name)
		if errors.Is(err, unix.EAGAIN) {
			left = append(left, names[i+1:]...)
			break
		}
	}
	h.following.Lock()
	defer h.following.Unlock()
	h.came = append(h.came, left...)
	return errors.Join(errs...)
}

func isPod(i firewall.Interface) bool { return strings.HasPrefix(i.Name, "pod:") }

// reattach attaches the hooks again on interfaces that may have been replaced by others with the
// same index, or whose frames are others. When the kernel does not answer for one in time, the
// others wait for the next pass.
func (h *Hooks) reattach(remade map[int]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var late error
	for _, i := range h.followed {
		if _, on := h.attached[i.Index]; !on || !remade[int(i.Index)] {
			continue
		}
		if late != nil {
			h.config.Links.keepRemade(map[int]bool{int(i.Index): true})
			continue
		}
		late = h.attachLocked(i)
	}
}

// attach puts the hooks on those of the changed interfaces that are to be guarded, tries again
// what failed, and takes the hooks off the others. An interface that cannot be guarded is a
// problem in the status. One that vanished in the meantime is not: its removal will be reported.
// When the kernel does not answer for one in time, the others wait for the next pass.
func (h *Hooks) attach(changed, gone []firewall.Interface) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var errs []error
	var late error
	for _, i := range slices.AppendSeq(slices.Clone(gone), maps.Values(h.left)) {
		errs = append(errs, h.detachLocked(i, &late))
	}
	for _, i := range changed {
		if !h.guards(i.Name) {
			errs = append(errs, h.detachLocked(i, &late))
		} else if _, on := h.attached[i.Index]; !on && late == nil {
			late = h.attachLocked(i)
		} else if !on {
			h.refused[i.Index] = late
		}
	}
	for index := range h.refused {
		at, there := slices.BinarySearchFunc(h.followed, firewall.Interface{Index: index},
			firewall.CompareInterfaces)
		if there && late == nil && !slices.ContainsFunc(changed, func(i firewall.Interface) bool {
			return i.Index == index
		}) {
			late = h.attachLocked(h.followed[at])
		}
	}
	return errors.Join(errs...)
}

// detachLocked takes the hooks off an interface, if they are on it. Those of one that could not be
// attached again may still be. late is set when the kernel does not answer in time; then nothing is
// asked, and the next pass tries it.
func (h *Hooks) detachLocked(i firewall.Interface, late *error) error {
	_, on := h.attached[i.Index]
	_, left := h.left[i.Index]
	if _, refused := h.refused[i.Index]; !on && !refused && !left {
		return nil
	}
	delete(h.refused, i.Index)
	delete(h.attached, i.Index)
	h.left[i.Index] = i
	if *late != nil {
		return nil
	}
	if err := h.config.Engine.Detach(i.Index); err != nil {
		if errors.Is(err, unix.EAGAIN) {
			*late = err
		}
		return fmt.Errorf("interface %s: %w", i.Name, err)
	}
	delete(h.left, i.Index)
	return nil
}

// DetachOthers takes the hooks off interfaces that an earlier agent guarded and this one is not to
// guard. Pods have theirs from their own making. An interface that went before this agent knew it
// is not reported as gone: its hooks are removed here, too. A tunnel in the kernel keeps its own
// as long as it is there: until the peers' part deletes it, packets come out of it.
func (h *Hooks) DetachOthers() error {
	// before the list: what is attached meanwhile is in that
	taken, err := h.config.Engine.Hooked()
	errs := []error{err}
	there := map[uint32]bool{}
	for _, i := range h.config.Links.Interfaces() {
		there[i.Index] = true
		if !h.config.Settings.Guards(i.Name) && !h.config.Tunnel.IsKernelTunnel(i.Name) &&
			!isPod(i) && !i.Tunnel {
			errs = append(errs, h.config.Engine.Detach(i.Index))
		}
	}
	for _, index := range taken {
		if !there[index] {
			errs = append(errs, h.config.Engine.Detach(index))
		}
	}
	return errors.Join(errs...)
}

// attachLocked puts the hooks on an interface. late is set when the kernel did not answer in time.
func (h *Hooks) attachLocked(i firewall.Interface) (late error) {
	hook, err := h.config.Engine.Attach(i.Index)
	delete(h.left, i.Index)
	unpinned := errors.Is(err, kernel.ErrUnpinned)
	if err == nil || unpinned {
		if h.attached[i.Index] != hook {
			h.config.Log.Info("guarding", "interface", i.Name, "hook", hook)
		}
		h.attached[i.Index] = hook
	} else {
		delete(h.attached, i.Index)
	}
	if err == nil {
		delete(h.refused, i.Index)
		return nil
	}
	switch {
	case h.refused[i.Index] != nil: // it is logged
	case unpinned:
		h.config.Log.Error(err.Error(), "interface", i.Name)
	default:
		h.config.Log.Error("cannot guard", "interface", i.Name, "err", err)
	}
	h.refused[i.Index] = err
	if errors.Is(err, unix.EAGAIN) {
		return err
	}
	return nil
}

// Interfaces returns the guarded interfaces, and as problems those that should be guarded but are
// not.
func (h *Hooks) Interfaces() (guarded []api.Interface, problems []api.Problem) {
	h.mu.Lock()
	defer h.mu.Unlock()
	guarded = []api.Interface{}
	for _, i := range h.config.Links.Interfaces() {
		if hook, on := h.attached[i.Index]; on {
			guarded = append(guarded, api.Interface{Name: i.Name, Index: i.Index, Hook: hook,
				Before: h.before[i.Index]})
		}
		if i.Index == h.config.Tunnel.Index() && h.config.Tunnel.IsUserTunnel(i.Name) {
			guarded = append(guarded, api.Interface{Name: i.Name, Index: i.Index, Hook: "tunnel"})
		}
		if err := h.refused[i.Index]; errors.Is(err, kernel.ErrUnpinned) {
			problems = append(problems, api.Problem{What: fmt.Sprintf("%s is %v", i.Name, err),
				Advice: "mount the bpf file system of the pins again"})
		} else if err != nil {
			problems = append(problems, api.Problem{What: fmt.Sprintf("%s is not guarded: %v",
				i.Name, err), Advice: "weir doctor"})
		}
	}
	if len(guarded) == 0 {
		problems = append(problems, api.Problem{What: "no interface is guarded",
			Advice: fmt.Sprintf("none matches %q; see weir up --iface",
				h.config.Settings.Interfaces)})
	}
	return guarded, problems
}

// Skipped returns the interfaces that are not guarded because another program made them for its
// containers.
func (h *Hooks) Skipped() (all []api.Skipped) {
	for _, i := range h.config.Links.Interfaces() {
		if maker := h.config.Settings.Skips(i.Name); maker != "" {
			all = append(all, api.Skipped{Name: i.Name, Index: i.Index, Maker: maker})
		}
	}
	return all
}

// SetPaused sets whether the hooks wait until the engine knows the pods.
func (h *Hooks) SetPaused(on bool) {
	h.following.Lock()
	defer h.following.Unlock()
	h.paused = on
}

// LogNew logs interfaces that came while no agent ran: no rules were applied to their
// packets.
func (h *Hooks) LogNew(before []uint32) {
	if !h.config.Engine.Guarded() {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, i := range h.config.Links.Interfaces() {
		if _, on := h.attached[i.Index]; on && !slices.Contains(before, i.Index) {
			h.config.Log.Warn("the interface was created while no agent ran: until now no "+
				"rules applied to its packets", "interface", i.Name)
		}
	}
}
