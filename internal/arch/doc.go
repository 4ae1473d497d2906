// Package arch holds the rules of the house that a compiler does not know, as functions that list
// every violation in a tree. Its tests run them over the project, and over a small bad tree in
// testdata where each of them has to find something: a check that cannot fail is no check.
//
//   - Imports: rooms import one way only (see law.go for the order), the public libraries stay
//     light, and some libraries have one door.
//   - Code: only cmd/weir prints and exits, nothing happens in an init function, and every exported
//     identifier says what it is.
//   - Dials: whatever is dialed or looked up by name goes through package eyeballs.
//   - Text: no file grows beyond what one can read in a sitting, and none speaks of the machine
//     that it was written on.
package arch
