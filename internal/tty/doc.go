// Package tty knows how to write for a person: whether a terminal is listening, how wide it is,
// whether it wants colour, how to line up a table, and how to show a name that comes from outside
// without letting it command the terminal.
//
// Three rules hold everywhere. Meaning is never in colour alone. What goes into a pipe or a file
// has no colour and no width. A name that somebody else chose (an interface, a pod, a DNS name)
// passes Escape before a person sees it; Table does that for every cell.
package tty
