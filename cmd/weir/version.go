package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/weirnet/weir/observe"
)

// release is the version of the source; a build from a tag or a checkout adds what the Go tool has
// recorded.
const release = "0.1.0-dev"

// commit is set by the linker (-X main.commit=...), for builds in which the Go tool records
// nothing, such as the Debian package.
var commit string

type versionAnswer struct {
	Version  int    `json:"version"`
	Weir     string `json:"weir"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func versionCommand(c *call) action {
	asJSON := c.json("")
	return func() error { return printVersion(c.out, *asJSON) }
}

func printVersion(out io.Writer, asJSON bool) error {
	v := version()
	if asJSON {
		return printJSON(out, v)
	}
	fmt.Fprintf(out, "weir %s", v.Weir)
	if len(v.Commit) >= 12 {
		fmt.Fprintf(out, " %s", v.Commit[:12])
	}
	fmt.Fprintf(out, " (%s, %s)\n", v.Go, v.Platform)
	return nil
}

// version returns what this binary was built from.
func version() versionAnswer {
	v := versionAnswer{Version: 1, Weir: release, Go: runtime.Version(), Commit: commit,
		Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	return v
}

// build is version for the metrics.
func build() observe.Build {
	v := version()
	return observe.Build{Version: v.Weir, Revision: v.Commit, Modified: v.Modified}
}
