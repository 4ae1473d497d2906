// Package arch checks the project's rules that the compiler does not check. Each function lists the
// violations in a tree. The tests run them on the project, and on a small bad tree in testdata in
// which each must find a violation, so that no check passes by accident.
//
//   - Imports: packages import in one direction only (see imports.go for the order), the public
//     libraries have few dependencies, and some may be imported by one package only.
//   - Code: only cmd/weir prints and exits, there are no init functions, and every exported
//     identifier has a doc comment.
//   - Dials: connections and name lookups go through package eyeballs.
//   - Text: no file of code has more than 500 lines, and none names the machine that it was
//     written on.
//   - Tests: no test has more than 80 lines.
//   - Vocabulary: terms with a standard name have that name, in code, prose and file names.
//   - Columns: lines fit into 100 columns.
//   - Sentences: those of comments have at most 30 words.
package arch
