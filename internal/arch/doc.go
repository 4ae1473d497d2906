// Package arch holds the rules of the project that a compiler does not check, as functions that
// list every violation in a tree. Its tests run them over the project, and over a small bad tree in
// testdata where each of them has to find something: a check that cannot fail is not a check.
//
//   - Imports: packages import in one direction only (see law.go for the order), the public
//     libraries stay light, and some libraries have one importer only.
//   - Code: only cmd/weir prints and exits, there are no init functions, and every exported
//     identifier has a doc comment.
//   - Dials: connections and name lookups go through package eyeballs.
//   - Text: no file of code has more than 500 lines, and none names the machine that it was
//     written on.
//   - Tests: no test has more than 80 lines.
//   - Vocabulary: terms with a standard name have that name, in code, prose and file names.
//   - Columns: lines fit into 100 columns.
package arch
