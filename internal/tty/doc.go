// Package tty writes text for people. It finds out whether a file is a terminal and how wide that
// is, aligns tables, and escapes names from outside so that they cannot control the terminal.
//
// Two rules hold everywhere. Output to a pipe or a file does not depend on a terminal width. A name
// from outside (an interface, a pod, a DNS name) is escaped with Escape before it is shown; Table
// does that for every cell.
package tty
