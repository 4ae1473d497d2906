package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/weirnet/weir/cni"
)

// cniTimeout bounds a call. A runtime kills plugins after a time of its own, usually minutes.
const cniTimeout = 60 * time.Second

// isPlugin reports whether the binary was called as a CNI plugin, by the type of a network
// configuration.
func isPlugin(args []string) bool { return len(args) > 0 && filepath.Base(args[0]) == "weir-cni" }

// runPlugin is the CNI plugin: it serves the container runtime on stdin and stdout and returns the
// exit status.
func runPlugin(ctx context.Context, in io.Reader, out io.Writer) int {
	ctx, cancel := context.WithTimeout(ctx, cniTimeout)
	defer cancel()
	return cni.Run(ctx, cni.ReadEnv(os.Getenv), in, out, dialNode)
}

func cniCommand(c *call) action {
	return func() error {
		if code := runPlugin(c.ctx, c.in, c.out); code != 0 {
			return statusError(code) // the error object is on stdout
		}
		return nil
	}
}
