package host

import (
	"path"
	"strings"
)

// foreignNames are the interfaces that other programs make for their containers and virtual
// machines, and who makes them. What these programs forward crosses the host's own cards, too, so
// their packets are evaluated there. A rule set that denies by default would cut them a second time
// at an interface that its author does not know.
var foreignNames = []struct{ glob, maker string }{
	{"docker0", "Docker"},
	{"docker_gwbridge", "Docker"},
	{"br-" + strings.Repeat("[0-9a-f]", 12), "Docker"},
	{"virbr*", "libvirt"},
	{"vnet[0-9]*", "libvirt"},
	{"podman[0-9]*", "Podman"},
	{"cni-podman[0-9]*", "Podman"},
	{"cni[0-9]*", "CNI"},
	{"nerdctl[0-9]*", "nerdctl"},
	{"lxcbr[0-9]*", "LXC"},
	{"lxdbr[0-9]*", "LXD"},
	{"incusbr[0-9]*", "Incus"},
	{"veth*", "a container"},
	{"nk[0-9]*", "a container"}, // as the kernel names netkits
}

// InterfaceMaker returns the program that usually makes interfaces with such a name for its
// containers, "" for other names.
func InterfaceMaker(name string) string {
	for _, f := range foreignNames {
		if ok, _ := path.Match(f.glob, name); ok {
			return f.maker
		}
	}
	return ""
}

// names reports whether a glob names interfaces, as opposed to one that begins with a wildcard and
// means all.
func names(glob string) bool { return !strings.ContainsAny(glob[:1], `*?[\`) }
