package host

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/firewall/kernel"
)

// shownForeign is how many interfaces and links of another Weir a problem names.
const shownForeign = 8

// NoteForeign notes the programs of others at the hooks, for the status. Those of another Weir are
// a problem: what one of the two refuses is refused, and one of them gets no rules any more. They
// are left when a mount hides the pins, and the next agent starts without them. A look that fails
// ends neither: it may have missed any of them.
func (h *Hooks) NoteForeign() {
	const about, unknown = "another Weir", "programs of others"
	all, err := h.config.Engine.Foreign()
	if err != nil {
		h.config.Problems.Set(unknown, "cannot list all programs at the hooks: "+err.Error(),
			"weir doctor")
	} else {
		h.config.Problems.Solved(unknown)
	}
	h.mu.Lock()
	if err != nil {
		all = h.addForeignLocked(all)
	}
	h.foreign = all
	h.mu.Unlock()
	before := map[uint32][]api.Before{}
	var at, links []string
	for _, f := range all {
		direction := "in"
		if f.Out {
			direction = "out"
		}
		if f.Weir {
			at = append(at, h.config.Links.Name(f.Index)+" "+direction)
			links = append(links, fmt.Sprint(f.Link))
			continue
		}
		before[f.Index] = append(before[f.Index], api.Before{Hook: f.Hook, Direction: direction,
			Name: f.Name, Program: f.Program})
	}
	h.mu.Lock()
	h.before = before
	h.mu.Unlock()
	if at == nil {
		h.config.Problems.Solved(about)
		return
	}
	h.config.Problems.Set(about, "another Weir decides, too: "+few(at)+". This one does not find "+
		"its pins", "stop weir, unmount what hides the pins of the other one, start weir; without "+
		"pins end each of its links: bpftool link detach id "+few(links))
}

// addForeignLocked returns the programs that are known at the attached interfaces, and those that
// were found now behind them.
func (h *Hooks) addForeignLocked(found []kernel.Foreign) (all []kernel.Foreign) {
	for _, f := range h.foreign {
		if _, on := h.attached[f.Index]; on {
			all = append(all, f)
		}
	}
	for _, f := range found {
		if !slices.ContainsFunc(all, func(known kernel.Foreign) bool {
			known.Name = f.Name // which may not have been readable
			return known == f
		}) {
			all = append(all, f)
		}
	}
	return all
}

// few joins the first ones of a list.
func few(all []string) string {
	if more := len(all) - shownForeign; more > 0 {
		all = append(all[:shownForeign:shownForeign], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
