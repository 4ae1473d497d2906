package arch

import (
	"go/ast"
	"path"
	"slices"
)

// oldAddresses are what package net had for addresses before net/netip.
var oldAddresses = []string{"IP", "IPMask", "IPNet", "IPAddr", "ParseIP", "ParseCIDR"}

// mayUseOldAddresses are the packages and files that may name them, and why.
var mayUseOldAddresses = map[string]string{
	"internal/nl":                "the netlink library has them",
	"cni":                        "the CNI library has them",
	"eyeballs/hostview_other.go": "net.InterfaceAddrs returns them",
	"proxy/reach.go":             "net.InterfaceAddrs returns them",
}

// Addresses lists every place in the program's Go files below root where an address is not of
// net/netip.
func Addresses(root string) ([]string, error) {
	return program(root, func(name string, file *ast.File, report reportFunc) {
		if mayUseOldAddresses[path.Dir(name)] != "" || mayUseOldAddresses[name] != "" {
			return
		}
		imported := imports(file)
		ast.Inspect(file, func(n ast.Node) bool {
			from, as, what := selected(n, imported)
			if from == "net" && slices.Contains(oldAddresses, what) {
				report(n, "%s.%s: addresses are of net/netip", as, what)
			}
			return true
		})
	})
}
