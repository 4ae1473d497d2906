package host

import (
	"fmt"
	"strings"

	"github.com/weirnet/weir/agent/api"
)

// shownForeign is how many interfaces and links of another Weir a problem names.
const shownForeign = 8

// NoteForeign notes the programs of others at the hooks, for the status. Those of another Weir are
// a problem: what one of the two refuses is refused, and one of them gets no rules any more. They
// are left when a mount hides the pins, and the next agent starts without them.
func (h *Hooks) NoteForeign() {
	const about, unknown = "another Weir", "programs of others"
	all, err := h.config.Engine.Foreign()
	if err != nil {
		h.config.Problems.Set(unknown, "cannot list all programs at the hooks: "+err.Error(),
			"weir doctor")
	} else {
		h.config.Problems.Solved(unknown)
	}
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

// few joins the first ones of a list.
func few(all []string) string {
	if more := len(all) - shownForeign; more > 0 {
		all = append(all[:shownForeign:shownForeign], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, ", ")
}
