// Package problem keeps the list of problems of a node, for its status, and retries failed steps.
package problem

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/weirnet/weir/agent/api"
)

// List holds the problems that the status shows, one for each subject, in order of arrival. Its
// zero value with a Log is ready.
type List struct {
	Log *slog.Logger // problems begin and end there, too

	mu  sync.Mutex // its place in the lock order: agent/doc.go
	all []Problem  // guarded by mu
}

// Problem is a problem of the node.
type Problem struct {
	About string // the subject
	File  string // the problem is over when this file is gone; "" for none
	api.Problem
}

// Add adds a problem, which the status shows from now on.
func (l *List) Add(what, advice string) { l.Set(what, what, advice) }

// Set notes a problem until Solved is called for the same subject, in place of the one there was.
func (l *List) Set(about, what, advice string) {
	l.Put(Problem{About: about, Problem: api.Problem{What: what, Advice: advice}})
}

// Put notes a problem, in place of the one about the same subject.
func (l *List) Put(p Problem) {
	if l.put(p) {
		l.Log.Warn(p.What)
	}
}

// put reports whether the content of the problem differs from what was known of the subject.
func (l *List) put(p Problem) (news bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.all {
		if l.all[i].About == p.About {
			news = l.all[i] != p
			l.all[i] = p
			return news
		}
	}
	l.all = append(l.all, p)
	return true
}

// Solved ends the problem about a subject, if there is one.
func (l *List) Solved(about string) {
	if l.end(about) {
		l.Log.Info("problem solved", "problem", about)
	}
}

func (l *List) end(about string) (was bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.all)
	l.all = slices.DeleteFunc(l.all, func(p Problem) bool { return p.About == about })
	return len(l.all) < n
}

// All returns the current problems.
func (l *List) All() (all []api.Problem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.DeleteFunc(l.all, func(p Problem) bool {
		if p.File == "" {
			return false
		}
		_, err := os.Lstat(p.File)
		return errors.Is(err, fs.ErrNotExist)
	})
	for _, p := range l.all {
		all = append(all, p.Problem)
	}
	return all
}

// Hint returns the hint of an error, or otherwise.
func Hint(err error, otherwise string) string {
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) {
		return hinted.Hint()
	}
	return otherwise
}
