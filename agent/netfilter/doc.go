// Package netfilter finds out whether netfilter may translate what goes from or to pods. It errs on
// the side of yes.
package netfilter
