// Package netfilter detects whether netfilter may translate packets of pods. If it is not sure, it
// answers yes.
package netfilter
