package cni

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Env holds the variables of one call.
type Env struct {
	Command   string // CNI_COMMAND
	Container string // CNI_CONTAINERID
	Netns     string // CNI_NETNS
	IfName    string // CNI_IFNAME
	Args      string // CNI_ARGS
	Path      string // CNI_PATH
}

// ReadEnv reads the variables with getenv.
func ReadEnv(getenv func(string) string) Env {
	return Env{
		Command: getenv("CNI_COMMAND"), Container: getenv("CNI_CONTAINERID"),
		Netns:  getenv("CNI_NETNS"),
		IfName: getenv("CNI_IFNAME"), Args: getenv("CNI_ARGS"), Path: getenv("CNI_PATH"),
	}
}

var containerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// check refuses what the specification refuses for a command.
func (e Env) check() *types.Error {
	perContainer := e.Command == "ADD" || e.Command == "DEL" || e.Command == "CHECK"
	if !perContainer {
		return nil
	}
	missing := func(name string) *types.Error {
		return fail(types.ErrInvalidEnvironmentVariables,
			"the container runtime sets it; see the CNI specification, section 2", "%s is not set",
			name)
	}
	switch {
	case e.Container == "":
		return missing("CNI_CONTAINERID")
	case e.IfName == "":
		return missing("CNI_IFNAME")
	case e.Netns == "" && e.Command != "DEL":
		return missing("CNI_NETNS")
	case !containerForm.MatchString(e.Container):
		return fail(types.ErrInvalidEnvironmentVariables, "letters, digits, '_', '.' and '-'",
			"CNI_CONTAINERID %q is not a container id", e.Container)
	case len(e.IfName) > 15 || e.IfName == "." || e.IfName == ".." ||
		strings.ContainsAny(e.IfName, "/: \t\n"):
		return fail(types.ErrInvalidEnvironmentVariables,
			"at most 15 characters, none of '/', ':' and white space",
			"CNI_IFNAME %q is not an interface name", e.IfName)
	case e.Netns != "" && !filepath.IsAbs(e.Netns):
		return fail(types.ErrInvalidNetNS, "the container runtime gives an absolute path",
			"CNI_NETNS %q is not an absolute path", e.Netns)
	}
	return nil
}

// cniArgs are the values of CNI_ARGS.
type cniArgs struct {
	name, mac string
	namespace string // the pod's Kubernetes namespace
	ips       []string
	labels    map[string]string
}

// args parses CNI_ARGS. It ignores other keys: runtimes put their own there.
func (e Env) args() (cniArgs, error) {
	a := cniArgs{labels: map[string]string{}}
	var podName string
	for pair := range strings.SplitSeq(e.Args, ";") {
		if pair == "" {
			continue
		}
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return a, fmt.Errorf("%q is not KEY=VALUE", pair)
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			a.namespace = value
		case "K8S_POD_NAME":
			podName = value
		case "IP":
			a.ips = strings.Split(value, ",")
		case "MAC":
			a.mac = value
		case "WEIR_NAME":
			a.name = value
		case "WEIR_LABELS":
			for label := range strings.SplitSeq(value, ",") {
				k, v, ok := strings.Cut(label, "=")
				if !ok {
					return a, fmt.Errorf("label %q is not KEY=VALUE", label)
				}
				a.labels[k] = v
			}
		}
	}
	if a.name == "" && podName != "" {
		a.name = podName
		// Also when both are the same: a pod must not get the name of one without a namespace.
		if a.namespace != "" {
			a.name = a.namespace + "." + podName
		}
	}
	return a, nil
}
