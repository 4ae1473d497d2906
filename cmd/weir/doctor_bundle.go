package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/weirnet/weir/agent/doctor"
)

// bundle writes everything that a bug report needs into a file that only its owner can read.
func (c *call) bundle(name string, mask bool, r doctor.Report) error {
	files := []doctor.File{asFile("doctor.json", r), asFile("version.json", version())}
	for _, path := range []string{"/proc/version", "/proc/cmdline", "/proc/net/dev",
		"/proc/meminfo", "/etc/os-release", c.paths().Settings(), c.paths().Rules()} {
		text, err := os.ReadFile(path)
		files = append(files, doctor.File{Name: "files" + path, Text: orError(text, err)})
	}
	for file, path := range map[string]string{
		"status.json": "/v1/status", "rules.json": "/v1/rules", "tables.json": "/v1/tables",
		"states.json": "/v1/states",
		"top.json":    "/v1/top?n=100", "metrics.txt": "/metrics",
		"events.jsonl": "/v1/events?since=1h&follow=0",
	} {
		text, err := c.client().Raw(c.ctx, path)
		files = append(files, doctor.File{Name: "node/" + file, Text: orError(text, err)})
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return c.failed(err)
	}
	err = doctor.WriteBundle(f, files, mask, time.Now())
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		os.Remove(name)
		return c.failed(err)
	}
	what := "with addresses; --mask hides them"
	if mask {
		what = "addresses masked"
	}
	fmt.Fprintf(c.stderr, "%s: %s, secrets masked, %s. Check it before you send it.\n",
		c.show(name), plural(len(files), "file"), what)
	return nil
}

func asFile(name string, v any) doctor.File {
	text, err := json.MarshalIndent(v, "", "  ")
	return doctor.File{Name: name, Text: orError(text, err)}
}

func orError(text []byte, err error) []byte {
	if err != nil {
		return []byte("not read: " + err.Error() + "\n")
	}
	return text
}
