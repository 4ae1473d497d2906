// Package agent is the hall of the house: the only room where the others meet. A Node brings rules,
// tables, interfaces and open connections together in the kernel engine, follows what changes, and
// answers the local API.
//
// # Who owns what
//
// The engine enforces, and what it enforces is pinned, so that it goes on without the agent. The
// rulebook owns the rules: every change goes through it, one at a time, is compiled first, and is
// either wholly in force and saved or not made. The links follow the host's interfaces and
// addresses; the node attaches hooks as they come and go.
//
// # Without a node
//
// Check, Why and Replay work on rule files alone, with the user-space engine, and need no rights.
package agent
