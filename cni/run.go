package cni

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Versions are the versions of the specification that the plugin supports, oldest first.
var Versions = []string{"0.4.0", "1.0.0", "1.1.0"}

// Run serves one call: it reads the configuration from stdin, writes the result or an error object
// to stdout, and returns the exit status. dial connects to the agent with the given --root.
func Run(ctx context.Context, env Env, stdin io.Reader, stdout io.Writer,
	dial func(root string) (Agent, error)) int {
	version := Versions[len(Versions)-1]
	answer, failed := serve(ctx, env, stdin, dial, &version)
	if failed != nil {
		writeError(stdout, version, failed)
		return 1
	}
	if answer == nil {
		return 0
	}
	if err := json.NewEncoder(stdout).Encode(answer); err != nil {
		return 1
	}
	return 0
}

// writeError prints an error object. It has the version of the configuration, which types.Error has
// no field for.
func writeError(w io.Writer, version string, e *types.Error) {
	out := struct {
		CNIVersion string `json:"cniVersion"`
		Code       uint   `json:"code"`
		Msg        string `json:"msg"`
		Details    string `json:"details,omitempty"`
	}{version, e.Code, e.Msg, e.Details}
	_ = json.NewEncoder(w).Encode(out) // a failure cannot be reported anywhere
}

// maxConfig is the longest configuration in bytes.
const maxConfig = 1 << 20

// serve dispatches a call. It sets version to the configuration's once that is known and supported.
func serve(ctx context.Context, env Env, stdin io.Reader, dial func(string) (Agent, error),
	version *string) (any, *types.Error) {
	data, err := io.ReadAll(io.LimitReader(stdin, maxConfig))
	if err != nil {
		return nil, fail(types.ErrIOFailure, "", "read the network configuration: %v", err)
	}
	if env.Command == "VERSION" {
		return versions(data)
	}
	commands := map[string]func(context.Context, *call) (any, *types.Error){
		"ADD": add, "DEL": del, "CHECK": check, "GC": gc, "STATUS": status,
	}
	command, ok := commands[env.Command]
	if !ok {
		return nil, fail(types.ErrInvalidEnvironmentVariables,
			"it is one of ADD, DEL, CHECK, GC, STATUS and VERSION, set by a container runtime; "+
				"to attach by hand, use 'weir pod'", "CNI_COMMAND is %q", env.Command)
	}
	if e := env.check(); e != nil {
		return nil, e
	}
	c, e := parseConfig(data)
	if e != nil {
		return nil, e
	}
	if !slices.Contains(Versions, c.CNIVersion) {
		return nil, fail(types.ErrIncompatibleCNIVersion, "weir-cni supports "+
			strings.Join(Versions, ", "), "the configuration has cniVersion %q", c.CNIVersion)
	}
	*version = c.CNIVersion
	if c.Name == "" {
		return nil, fail(types.ErrInvalidNetworkConfig, "give the network a name",
			"the configuration has no name")
	}
	needs := map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
	if least := needs[env.Command]; least != "" &&
		slices.Index(Versions, c.CNIVersion) < slices.Index(Versions, least) {
		return nil, fail(types.ErrIncompatibleCNIVersion, "set \"cniVersion\" to "+least,
			"%s needs specification %s, the configuration has %s", env.Command, least, c.CNIVersion)
	}
	agent, err := dial(c.Root)
	if err != nil {
		return nil, fromAgent("reach the agent", err)
	}
	return command(ctx, &call{env: env, config: c, stdin: data, agent: agent})
}

// call is one request.
type call struct {
	env    Env
	config *config
	stdin  []byte
	agent  Agent
}

// versions answers VERSION.
func versions(data []byte) (any, *types.Error) {
	var request struct {
		CNIVersion string `json:"cniVersion"`
	}
	if err := json.Unmarshal(data, &request); err != nil && len(data) > 0 {
		return nil, fail(types.ErrDecodingFailure, "", "version request: %v", err)
	}
	if request.CNIVersion == "" {
		request.CNIVersion = Versions[len(Versions)-1]
	}
	return struct {
		CNIVersion        string   `json:"cniVersion"`
		SupportedVersions []string `json:"supportedVersions"`
	}{request.CNIVersion, Versions}, nil
}

func gc(ctx context.Context, c *call) (any, *types.Error) {
	if c.config.Valid == nil && c.config.ValidV1 == nil {
		return nil, fail(types.ErrInvalidNetworkConfig,
			"the container runtime lists what to keep, [] for nothing; see the CNI specification, "+
				"section 4, GC",
			"the configuration has no cni.dev/valid-attachments")
	}
	var keep []string
	for _, a := range append(c.config.Valid, c.config.ValidV1...) {
		keep = append(keep, a.ContainerID+"/"+a.IfName)
	}
	ipam, err := c.ipam()
	if err != nil {
		return nil, err
	}
	var errs []error
	if err := c.agent.GC(ctx, c.config.Name, keep); err != nil {
		errs = append(errs, err)
	}
	if err := ipam.gc(ctx); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fromAgent("garbage collection", errors.Join(errs...))
	}
	return nil, nil
}

func status(ctx context.Context, c *call) (any, *types.Error) {
	ipam, e := c.ipam()
	if e == nil {
		e = ipam.usable()
	}
	if e != nil {
		return nil, e
	}
	if err := c.agent.Status(ctx); err != nil {
		e := fromAgent("status", err)
		e.Code = types.ErrPluginNotAvailable
		return nil, e
	}
	if err := ipam.status(ctx); err != nil {
		code := types.ErrPluginNotAvailable
		var object *types.Error
		if errors.As(err, &object) && object.Code == types.ErrLimitedConnectivity {
			code = object.Code
		}
		return nil, fail(code, "the plugin must be in CNI_PATH ("+c.env.Path+")",
			"IPAM plugin %s: %v", ipam.plugin, err)
	}
	return nil, nil
}
