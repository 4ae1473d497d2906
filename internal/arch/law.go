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

// module is the path that all rooms are under.
const module = "github.com/weirnet/weir"

// ranks is the order of the house. A room imports rooms of a lower rank; packages below a room
// belong to it unless they stand here themselves. A new room needs a line here, and
// docs/design/0001 has to agree.
var ranks = map[string]int{
	"packet": 0, "examples": 0, // pure
	"flow": 1, "rule": 1,
	"firewall": 2, // contracts
	"store":    3, "observe": 3, "eyeballs": 3, "udp": 3,
	"internal/tty": 2, "internal/nl": 3, "internal/pcap": 3, "internal/poller": 2,
	"internal/atomicfile": 2, "internal/unixsocket": 2,
	"firewall/soft": 4, "firewall/kernel": 4, "firewall/enginetest": 4, // workers
	"store/etcd": 4, "store/storetest": 4,
	"pod": 4, "overlay": 4, "proxy": 4, "cni": 4,
	"internal/nstest": 4, "internal/rebuilt": 4,
	"agent": 5, "agent/demo": 6,
	"cmd/weir": 7,
	"test":     8, "internal/arch": 8,
	"examples/tunfilter": 8, // a program of somebody who imports the library
}

// testRooms exist for tests: any room's tests may import them.
var testRooms = []string{"internal/nstest", "internal/rebuilt", "firewall/enginetest",
	"store/storetest"}

// users restricts who imports a room further than its rank does. Tests are free of it.
var users = map[string][]string{
	"internal/nstest": {"cmd/weir", "agent/demo", "test"},
	"internal/tty":    {"cmd/weir", "observe"},
	"internal/nl": {"pod", "overlay", "cni", "agent", "firewall/kernel", "internal/nstest",
		"cmd/weir"},
	"internal/poller":     {"udp", "overlay"},
	"internal/rebuilt":    {},
	"firewall/enginetest": {},
	"store/storetest":     {},
}

// light are the rooms that other programs import: they reach nothing of heavy, not even through
// others.
var light = []string{"packet", "flow", "rule", "firewall", "eyeballs", "udp"}

// heavy libraries drag a kernel interface or a server into whoever reaches them.
var heavy = []string{"github.com/vishvananda/", "github.com/cilium/ebpf", "go.etcd.io/",
	"github.com/prometheus/",
	"google.golang.org/grpc", module + "/internal/nl"}

// standardOnly are the rooms that use nothing but the standard library and each other.
var standardOnly = []string{"packet", "flow", "rule", "firewall"}

// doors names the one room through which a library is used, tests included, and why.
var doors = []struct{ library, room, why string }{
	{"github.com/vishvananda/", "internal/nl",
		"only internal/nl asks again when an answer was interrupted"},
	{"go.etcd.io/", "store/etcd", "everything else works without a store"},
	{"github.com/prometheus/", "observe", "one place names the metrics"},
}

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath, Dir                    string
	Standard                           bool
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// Imports lists every import in the module at root that the order of the house forbids.
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
		if _, ok := ranks[roomOf(name)]; !ok {
			found = append(found, fmt.Sprintf("%s: a room without a place in the order of the "+
				"house: give it one in internal/arch/law.go", name))
			continue
		}
		found = append(found, checkOrder(name, p)...)
		found = append(found, checkDoors(name, p)...)
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

// roomOf returns the room that a package of ours belongs to, or the package itself when it belongs
// to none.
func roomOf(name string) string {
	for dir := name; dir != "."; dir = path.Dir(dir) {
		if _, ok := ranks[dir]; ok {
			return dir
		}
	}
	return name
}

func checkOrder(name string, p pkg) (found []string) {
	room := roomOf(name)
	for _, imp := range p.Imports {
		other, ours := strings.CutPrefix(imp, module+"/")
		to := roomOf(other)
		if !ours || to == room {
			continue
		}
		if ranks[to] >= ranks[room] {
			found = append(found, fmt.Sprintf("%s imports %s: rooms import rooms to their left "+
				"only", name, other))
		} else if allowed, restricted := users[to]; restricted && !slices.Contains(allowed, room) {
			found = append(found, fmt.Sprintf("%s imports %s: only %v may", name, other, allowed))
		}
	}
	for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
		other, ours := strings.CutPrefix(imp, module+"/")
		to := roomOf(other)
		if ours && to != room && ranks[to] > ranks[room] && !slices.Contains(testRooms, to) {
			found = append(found, fmt.Sprintf("a test of %s imports %s: tests import no room to "+
				"their right", name, other))
		}
	}
	return found
}

func checkDoors(name string, p pkg) (found []string) {
	for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
		for _, d := range doors {
			if strings.HasPrefix(imp, d.library) && roomOf(name) != d.room {
				found = append(found, fmt.Sprintf("%s imports %s: use %s, because %s", name, imp,
					d.room, d.why))
			}
		}
	}
	return found
}

func checkReach(name string, p pkg, standard map[string]bool) (found []string) {
	room := roomOf(name)
	for _, dep := range p.Deps {
		for _, h := range heavy {
			if slices.Contains(light, room) && strings.HasPrefix(dep, h) {
				found = append(found, fmt.Sprintf("%s reaches %s: a library that others import "+
					"has to stay light", name, dep))
			}
		}
		if slices.Contains(standardOnly, room) && !standard[dep] &&
			!strings.HasPrefix(dep, module+"/") {
			found = append(found, fmt.Sprintf("%s reaches %s: it uses the standard library only",
				name, dep))
		}
	}
	return found
}
