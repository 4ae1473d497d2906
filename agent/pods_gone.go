package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/problem"
)

// sweepPause is how long a pod that could not be taken away rests until the next try.
const sweepPause = 5 * time.Second

// detachFailed records that a pod could not be taken away.
func (p *pods) detachFailed(err error) {
	p.node.log.Warn(err.Error())
	p.setTrouble(err)
	select {
	case p.failed <- err:
	default: // a sweep is due anyway
	}
}

// recordFailed shows what is wrong with the records.
func (p *pods) recordFailed(err error) {
	p.node.problems.Add(err.Error(), problem.Hint(err, "free space on the disk"))
}

func (p *pods) setTrouble(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trouble = err
}

// begin starts to take away pods that are gone; stop ends that, and waits for what is under way.
func (p *pods) begin(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.watch(ctx)
	}()
	p.stop = func() { cancel(); <-done }
}

// watch takes away, until ctx ends, pods whose interface is gone: their namespace ended, or the
// interface was deleted. The first sweep is for those that went while the node began.
func (p *pods) watch(ctx context.Context) {
	again := time.After(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.failed:
			again = time.After(sweepPause)
			continue
		case <-p.node.links.Lost():
			if len(p.dead()) == 0 { // those of detached pods are lost, too
				continue
			}
		case <-again:
		}
		before := p.dead()
		err := p.manager.Sweep(ctx)
		p.setTrouble(err)
		if err != nil {
			p.node.log.Warn("cannot take pods away", "err", err)
			again = time.After(sweepPause)
		}
		for _, name := range before {
			p.node.log.Info("pod is gone: its interface is", "pod", name)
		}
	}
}

// dead names the pods of the list whose interface is gone.
func (p *pods) dead() (names []string) {
	for _, one := range p.manager.List() {
		if p.node.links.IsLost(one.Index) {
			names = append(names, one.Name)
		}
	}
	return names
}

// problems lists pods that are gone and still hold resources.
func (p *pods) problems() (all []api.Problem) {
	for _, name := range p.dead() {
		all = append(all, api.Problem{What: fmt.Sprintf("pod %s: its interface is gone", name),
			Advice: "it is being taken away; ask again in a moment"})
	}
	if err := p.node.links.CheckRanges(p.node.config.Settings.Pods.Ranges,
		p.node.config.Settings.Overlay.Name); err != nil {
		all = append(all, api.Problem{What: err.Error() + "; no container is added",
			Advice: problem.Hint(err, "")})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.trouble != nil {
		all = append(all, api.Problem{What: p.trouble.Error(),
			Advice: fmt.Sprintf("it is tried again every %v", sweepPause)})
	}
	return all
}
