package agent

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/weirnet/weir/agent/api"
)

// problems holds what the status shows as wrong, one for each subject, in order of arrival.
type problems struct {
	mu  sync.Mutex // its place in the lock order: doc.go
	all []problem  // guarded by mu
}

type problem struct {
	about string
	file  string // the problem is over when this file is gone; "" for none
	api.Problem
}

// set notes a problem, in place of the one about the same thing. news reports whether its content
// differs.
func (p *problems) set(about, what, advice string) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setLocked(problem{about: about, Problem: api.Problem{What: what, Advice: advice}})
}

// setUntilGone notes a problem that is over when its file is gone.
func (p *problems) setUntilGone(one problem) (news bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.setLocked(one)
}

func (p *problems) setLocked(one problem) (news bool) {
	about := one.about
	for i := range p.all {
		if p.all[i].about == about {
			news = p.all[i] != one
			p.all[i] = one
			return news
		}
	}
	p.all = append(p.all, one)
	return true
}

// end forgets the problem about something. was reports whether there was one.
func (p *problems) end(about string) (was bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.all)
	p.all = slices.DeleteFunc(p.all, func(o problem) bool { return o.about == about })
	return len(p.all) < n
}

func (p *problems) list() (all []api.Problem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = slices.DeleteFunc(p.all, func(o problem) bool {
		if o.file == "" {
			return false
		}
		_, err := os.Lstat(o.file)
		return errors.Is(err, fs.ErrNotExist)
	})
	for _, o := range p.all {
		all = append(all, o.Problem)
	}
	return all
}

// problem notes something wrong that the status shows from now on.
func (n *Node) problem(what, advice string) { n.problemAbout(what, what, advice) }

// problemAbout records a problem until solved is called for the same subject.
func (n *Node) problemAbout(about, what, advice string) {
	if n.problems.set(about, what, advice) {
		n.log.Warn(what)
	}
}

// solved ends the problem about a subject.
func (n *Node) solved(about string) {
	if n.problems.end(about) {
		n.log.Info("solved", "problem", about)
	}
}

// aboutSaving is the subject of the problem that the rules in force are not the saved ones.
const aboutSaving = "saving the rules"

// unsaved records that the first rules could not be saved, and retries for as long as the node
// runs.
func (n *Node) unsaved(err error) {
	if err == nil {
		n.solved(aboutSaving)
		return
	}
	n.problemAbout(aboutSaving, "the rules in force cannot be saved: "+err.Error(),
		"free space on the disk; it is tried again")
	time.AfterFunc(retryEvery, func() { n.unsaved(n.book.saveAgain()) })
}

// hintOf returns the hint of an error, or otherwise.
func hintOf(err error, otherwise string) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return otherwise
}
