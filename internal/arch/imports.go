package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

// module is the path of the project's module.
const module = "github.com/weirnet/weir"

// ranks is the order of the packages. A package imports packages of a lower rank. A package below a
// listed directory belongs to that one unless it is listed itself. A new package needs a line here,
// and docs/design/0001 has to agree.
var ranks = map[string]int{
	"rule/op": -1, "internal/similar": -1,
	"packet": 0, "internal/program": 0, "examples": 0, // pure
	"flow": 1, "rule": 1,
	"firewall": 2, "store": 2, // contracts
	"observe": 3, "eyeballs": 3, "udp": 3,
	"internal/tty": 2, "internal/nl": 3, "internal/pcap": 3, "internal/poller": 2,
	"internal/atomicfile": 2, "internal/configfile": 2, "internal/filehint": 2, "internal/flock": 2,
	"internal/unixsocket": 2, "internal/forward": 2, "internal/podrange": 2,
	"firewall/soft": 4, "firewall/kernel": 4, "firewall/enginetest": 4, // workers
	"store/disk": 3, "store/admin": 3,
	"pod": 4, "pod/dns": 5, "overlay": 4, "proxy": 4, "cni": 5,
	"cni/netavark":      6,
	"internal/testrand": -1, "internal/pipenet": -1, // for tests, like the next
	"internal/nstest": 4, "internal/rebuilt": 4, "internal/releases": 4, "store/storetest": 4,
	"agent/api": 5, "agent/rulefile": 5, "agent/clock": 5, "agent/dirlock": 5, "agent/routes": 5,
	"agent/engines": 5, "agent/page": 5,
	"agent/problem": 6, "agent/adopt": 6, "agent/offline": 6, "agent/doctor": 6,
	"agent/netfilter": 6,
	// the parts of a node, none of which imports another one
	"agent/rules": 7, "agent/host": 7, "agent/pods": 7, "agent/peers": 7, "agent/watch": 7,
	"agent/cluster": 7, "agent/nat": 7, "agent/services": 7,
	"agent/setup": 8, "agent/hostfacts": 9, // what setup advises, and what that needs to know
	"agent": 8, "agent/demo": 9, // what connects the parts
	"cmd/weir": 10,
	"test":     11, "internal/arch": 11,
	"examples/tunfilter": 11, "examples/dnsbalancer": 11, "examples/fetch": 11, // programs
}

// agentParts are the packages that a node is made of. Their tests do not import another part
// either: what a part needs of others is in its Config.
var agentParts = []string{"agent/rules", "agent/host", "agent/pods", "agent/peers", "agent/watch",
	"agent/cluster", "agent/nat", "agent/services"}

// testPackages exist for tests: the tests of any package may import them.
var testPackages = []string{"internal/nstest", "internal/testrand", "internal/pipenet",
	"internal/rebuilt", "internal/releases", "firewall/enginetest", "store/storetest"}

// mayImport restricts who imports a package further than its rank does. Tests may import it.
var mayImport = map[string][]string{
	"internal/nstest": {"cmd/weir", "agent/demo", "test"},
	"internal/tty":    {"cmd/weir", "observe"},
	"internal/nl": {"pod", "overlay", "cni", "agent", "agent/adopt", "agent/doctor", "agent/host",
		"agent/netfilter", "agent/peers", "agent/pods", "agent/routes", "agent/services",
		"agent/hostfacts",
		"firewall/kernel", "internal/nstest", "cmd/weir"},
	"internal/poller":     {"udp", "overlay"},
	"internal/testrand":   {"firewall/enginetest", "store/storetest"},
	"internal/pipenet":    {},
	"internal/rebuilt":    {},
	"internal/releases":   {},
	"firewall/enginetest": {},
	"store/storetest":     {},
}

// isLight reports whether a listed package has to depend on nothing in heavy, not even indirectly:
// the libraries, with what belongs to them, and the contracts of the store.
func isLight(owner string) bool {
	return owner == "store" || slices.ContainsFunc(libraries, func(library string) bool {
		return rankedPackage(library) == owner
	})
}

// heavy libraries bring a kernel interface or a server with them.
var heavy = []string{"github.com/vishvananda/", "github.com/cilium/ebpf",
	"github.com/prometheus/", "google.golang.org/grpc", "go.etcd.io/", module + "/internal/nl"}

// standardOnly are the packages that use nothing but the standard library, each other, and what
// stands behind them.
var standardOnly = map[string][]string{"packet": nil, "flow": nil, "rule/op": nil,
	"internal/program": nil, "rule": nil, "firewall": nil, "store": {"golang.org/x/time/rate"}}

// soleImporters names the one package that imports a library, tests included, and why.
var soleImporters = []struct{ library, owner, why string }{
	{"github.com/vishvananda/", "internal/nl",
		"only internal/nl repeats a request whose answer was interrupted"},
	{"github.com/prometheus/", "observe", "one package names the metrics"},
}

// pkg is the output of `go list -json` for a package.
type pkg struct {
	ImportPath, Dir                    string
	Standard                           bool
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// Imports lists every import in the module at root that the order of the packages forbids.
func Imports(root string) ([]string, error) {
	pkgs, err := list(root)
	if err != nil {
		return nil, err
	}
	standard := map[string]bool{}
	for _, p := range pkgs {
		standard[p.ImportPath] = p.Standard
	}
	var found []string
	for _, p := range pkgs {
		name, ours := strings.CutPrefix(p.ImportPath, module+"/")
		if !ours {
			continue
		}
		if _, ok := ranks[rankedPackage(name)]; !ok {
			found = append(found, fmt.Sprintf("%s: a package without a rank: give it one in "+
				"internal/arch/imports.go", name))
			continue
		}
		found = append(found, checkOrder(name, p)...)
		found = append(found, checkSoleImporters(name, p)...)
		found = append(found, checkReach(name, p, standard)...)
	}
	return found, nil
}

func list(root string) ([]pkg, error) {
	cmd := exec.Command("go", "list", "-deps",
		"-json=ImportPath,Dir,Standard,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list in %s: %w\n%s", root, err, stderr.Bytes())
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
	return pkgs, nil
}

// rankedPackage returns the entry of ranks that a package of ours belongs to, or the package itself
// if there is none.
func rankedPackage(name string) string {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if _, ok := ranks[dir]; ok {
			return dir
		}
	}
	return name
}

func checkOrder(name string, p pkg) (found []string) {
	owner := rankedPackage(name)
	for _, imp := range p.Imports {
		other, ours := strings.CutPrefix(imp, module+"/")
		to := rankedPackage(other)
		if !ours || to == owner {
			continue
		}
		if ranks[to] >= ranks[owner] {
			found = append(found, fmt.Sprintf("%s imports %s: its rank is not lower", name,
				other))
		} else if allowed, ok := mayImport[to]; ok && !slices.Contains(allowed, owner) {
			found = append(found, fmt.Sprintf("%s imports %s: only %v may", name, other, allowed))
		}
	}
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		other, ours := strings.CutPrefix(imp, module+"/")
		to := rankedPackage(other)
		if !ours || to == owner {
			continue
		}
		if ranks[to] > ranks[owner] && !slices.Contains(testPackages, to) {
			found = append(found, fmt.Sprintf("a test of %s imports %s: its rank is higher",
				name, other))
		}
		if slices.Contains(agentParts, owner) && slices.Contains(agentParts, to) {
			found = append(found, fmt.Sprintf("a test of %s imports %s: parts know nothing of "+
				"each other", name, other))
		}
	}
	return found
}

func checkSoleImporters(name string, p pkg) (found []string) {
	for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		for _, d := range soleImporters {
			if strings.HasPrefix(imp, d.library) && rankedPackage(name) != d.owner {
				found = append(found, fmt.Sprintf("%s imports %s: use %s, because %s", name, imp,
					d.owner, d.why))
			}
		}
	}
	return found
}

func checkReach(name string, p pkg, standard map[string]bool) (found []string) {
	owner := rankedPackage(name)
	for _, dep := range p.Deps {
		for _, h := range heavy {
			if isLight(owner) && strings.HasPrefix(dep, h) {
				found = append(found, fmt.Sprintf("%s reaches %s: a library that others import "+
					"has to stay light", name, dep))
			}
		}
		also, only := standardOnly[owner]
		if only && !standard[dep] && !slices.Contains(also, dep) &&
			!strings.HasPrefix(dep, module+"/") {
			found = append(found, fmt.Sprintf("%s reaches %s: it uses the standard library only",
				name, dep))
		}
	}
	return found
}
