package kernel

import (
	"fmt"
	"path/filepath"

	"github.com/cilium/ebpf/link"

	"github.com/weirnet/weir/internal/nl"
)

// A flow that began at another engine's hook is unknown to ours until it is migrated. So that no
// packet of it is refused meanwhile, the programs of both overlap: ours come first at each hook,
// and do nothing until they are everywhere, because a flow that began at ours would be unknown to
// the others. Then, by one store, they decide at all hooks, and what they refuse, but for a SYN,
// the others decide (enum overlap in bpf/lib/consts.h). Each packet is decided by one of the two
// rule sets, whole. Once all flows are copied, ours decide alone, and what the others know is
// merged when the last packet has left them. Our links are pinned last: if this process dies before
// that, they go, and the other engine is as it was.
//
// Between its first copy and that merge a state may have missed packets (META_BEHIND). It refuses
// nothing meanwhile, and records how its connection ends by what nearly fits its numbers
// (catches_up in bpf/lib/tcp.h).

// mayOverlap reports whether both engines can stand at all hooks. At each one there must be the
// other engine's link and nothing behind it: what passes ours ends the chain of a hook. And ours
// must be nowhere without the other engine: what is refused there would pass.
func (e *Engine) mayOverlap(c *nl.Conn, hooks []*previousHook) (bool, error) {
	// Also a hook of which one direction alone is pinned: the engine before died between the two.
	ours, err := filepath.Glob(filepath.Join(e.dir, hookPins))
	if err != nil || len(ours) > 0 || len(e.links) != len(hooks) {
		return false, err
	}
	filtered, err := c.Filtered()
	if err != nil {
		return false, err
	}
	for _, h := range hooks {
		if h.filters[0] || filtered[int(h.index)] {
			return false, nil
		}
		for d := range directions {
			at, err := link.QueryPrograms(link.QueryOptions{Target: int(h.index),
				Attach: directions[d].attach})
			if gone(err) {
				return false, nil
			}
			if err != nil {
				return false, err
			}
			if len(at.Programs) != 1 {
				return false, nil
			}
		}
	}
	return true, nil
}

func (e *Engine) setOverlapLocked(overlap uint32) error {
	e.config.Overlap = overlap
	return e.putConfigLocked()
}

// joinHooksLocked attaches our programs before the other engine's, where both may overlap. They do
// nothing yet. An interface that has gone needs none.
func (e *Engine) joinHooksLocked(c *nl.Conn, hooks []*previousHook) error {
	may, err := e.mayOverlap(c, hooks)
	if err != nil || !may {
		return err
	}
	if err := e.setOverlapLocked(overlapTheirs); err != nil {
		return err
	}
	for _, h := range hooks {
		for d := range directions {
			h.ours[d], err = link.AttachTCX(link.TCXOptions{Interface: int(h.index),
				Program: h.programs[d], Attach: directions[d].attach,
				Anchor: link.BeforeLink(h.links[d])})
			if err != nil && !gone(err) {
				return fmt.Errorf("attach to interface %d %s: %w", h.index, directions[d].name, err)
			}
		}
	}
	return nil
}

// leave detaches our programs where they were attached before the other engine's.
func (h *previousHook) leave() error {
	a := attachment{index: h.index, links: h.ours}
	h.ours = [2]link.Link{}
	return a.close(true)
}

// keepOursLocked ends the overlap at an interface: our link is pinned, and the other engine's goes.
func (e *Engine) keepOursLocked(h *previousHook, direction int) error {
	path := e.linkPath(h.index, direction)
	if err := removeIfThere(path); err != nil { // of an interface that had this index before
		return err
	}
	if err := h.ours[direction].Pin(path); err != nil {
		return fmt.Errorf("pin the link of interface %d %s: %w", h.index,
			directions[direction].name, err)
	}
	if err := removeIfThere(filepath.Join(e.previous.dir, filepath.Base(path))); err != nil {
		return err
	}
	var theirs attachment
	theirs.index, theirs.links[direction] = h.index, h.links[direction]
	h.links[direction], h.ours[direction] = h.ours[direction], nil
	return theirs.close(true)
}
