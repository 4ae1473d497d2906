// Sbom prints the components of a Go binary as CycloneDX 1.5: the modules that the linker recorded,
// with their sums. The same binary gives the same text.
//
//	go run ./sbom BINARY
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
)

type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	info, err := buildinfo.ReadFile(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
	all := []component{{Type: "library", Name: "std", Version: info.GoVersion,
		PURL: "pkg:golang/std@" + info.GoVersion[2:]}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		all = append(all, component{Type: "library", Name: m.Path, Version: m.Version,
			PURL: "pkg:golang/" + m.Path + "@" + m.Version})
	}
	var made []property
	for _, s := range info.Settings {
		made = append(made, property{"go:build:" + s.Key, s.Value})
	}
	for _, m := range info.Deps {
		if m.Sum != "" {
			made = append(made, property{"go:sum:" + m.Path + "@" + m.Version, m.Sum})
		}
	}
	bom := map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": all,
		"metadata": map[string]any{
			"component": component{Type: "application", Name: info.Main.Path,
				Version: info.Main.Version, PURL: "pkg:golang/" + info.Main.Path},
			"properties": made,
		},
	}
	e := json.NewEncoder(os.Stdout)
	e.SetIndent("", "  ")
	if err := e.Encode(bom); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}
