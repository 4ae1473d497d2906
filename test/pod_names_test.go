package test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/internal/nstest"
)

// TestLongNamesOfContainersThatStopTogether: of many containers that stop at once, whose namespaces
// die while they are detached, each is followed at once by one with its name and published port.
// Those that ended without a word while no agent ran do not hold theirs either.
func TestLongNamesOfContainersThatStopTogether(t *testing.T) {
	t.Parallel()
	nstest.RequireRoot(t)
	h := newPodHost(t, "add allow ip from any to any\n")
	config := func(i int) string {
		return fmt.Sprintf(`{"cniVersion":"1.0.0","name":"net","type":"weir-cni","root":%q,`+
			`"runtimeConfig":{"portMappings":[{"hostPort":%d,"containerPort":80,`+
			`"protocol":"tcp"}]}}`, h.root, 9000+i)
	}
	h.cni("STATUS", "", "", strings.Replace(config(0), "1.0.0", "1.1.0", 1))
	before := h.traces()
	const n, rounds = 48, 3
	name := func(i int) string { return fmt.Sprint("WEIR_NAME=web", i) }
	id := func(i, round int) string { return fmt.Sprint("c", i, "-", round) }
	add := func(i, round int) (end func()) {
		pid, end := processNamespace(t)
		if out, _ := h.cni("ADD", id(i, round), "/proc/"+pid+"/ns/net", config(i),
			name(i)); out["ips"] == nil {
			t.Errorf("container %d, round %d: ADD: %v", i, round, out)
		}
		return end
	}
	ends := make([]func(), n)
	var all sync.WaitGroup
	each := func(do func(i int)) {
		for i := range n {
			all.Go(func() { do(i) })
		}
		all.Wait()
	}
	each(func(i int) { ends[i] = add(i, 0) })
	each(func(i int) { // all stop together, and start again as each is gone
		for round := range rounds {
			all.Go(ends[i])
			if out, _ := h.cni("DEL", id(i, round), "", config(i), name(i)); out != nil {
				t.Errorf("container %d, round %d: DEL: %v", i, round, out)
			}
			ends[i] = add(i, round+1)
		}
	})
	if list := h.pods(); len(list) != n {
		t.Errorf("%d pods", len(list))
	}
	h.kill()
	each(func(i int) { ends[i]() })
	h.start("--rules", h.file("etc/weir/rules", "add allow ip from any to any\n"))
	each(func(i int) { ends[i] = add(i, rounds+1) })
	each(func(i int) { // no one detaches these: their runtime was killed
		ends[i]()
		ends[i] = add(i, rounds+2)
	})
	each(func(i int) {
		all.Go(ends[i])
		h.cni("DEL", id(i, rounds+2), "", config(i), name(i))
	})
	eventually(t, "nothing is left", func() error {
		if now := h.traces(); now != before {
			return fmt.Errorf("the host had\n%s\nand has\n%s", before, now)
		}
		return nil
	})
	var s api.Status
	h.json(&s, "status", "-j")
	if !s.Healthy {
		t.Errorf("status %+v; the agent printed\n%s", s.Problems, h.stderr)
	}
}
