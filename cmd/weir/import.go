package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"

	"github.com/weirnet/weir/agent/api"
	"github.com/weirnet/weir/agent/routes"
	"github.com/weirnet/weir/rule/netfilter"
)

// importAnswer is the answer of import -j.
type importAnswer struct {
	Version  int                `json:"version"`
	Form     string             `json:"form"`
	Rules    int                `json:"rules"`
	Tables   int                `json:"tables"`
	Complete bool               `json:"complete"` // nothing was left out
	Remarks  []netfilter.Remark `json:"remarks"`
	Text     string             `json:"text"`
}

// leftOut is the exit status of import when rules were left out.
const leftOut = statusError(3)

func importCommand(c *call) action {
	asJSON := c.json("")
	out := c.StringP("out", "o", "", "write the rules to the new file `OUT` instead of stdout")
	networks := c.StringArray("network", nil,
		"a network of the host, whose broadcasts are for it; `PREFIX`, left out: those of this "+
			"host")
	c.takes(0, maxSources)
	return func() error {
		sources, err := c.sources()
		if err != nil {
			return c.failed(err)
		}
		options, err := importOptions(*networks)
		if err != nil {
			return c.wrong("%v", err)
		}
		result, err := netfilter.Import(sources, options)
		if err != nil {
			return c.failed(err)
		}
		if *asJSON {
			a := importAnswer{api.Version, result.Form, len(result.Rules.Rules),
				len(result.Rules.Tables), result.Complete(), result.Remarks, result.Text}
			if a.Remarks == nil {
				a.Remarks = []netfilter.Remark{}
			}
			err = printJSON(c.out, a)
		} else {
			err = c.writeImport(*out, result)
		}
		if err == nil && !result.Complete() {
			return leftOut
		}
		return err
	}
}

// maxSources is how many files may be given.
const maxSources = 64

// writeImport writes the rules, and the remarks to stderr.
func (c *call) writeImport(path string, result *netfilter.Result) error {
	var err error
	if path != "" {
		err = createWhole(path, []byte(result.Text))
	} else {
		_, err = fmt.Fprint(c.out, result.Text)
	}
	if err != nil {
		return c.failed(err)
	}
	left := 0
	for _, r := range result.Remarks {
		fmt.Fprintln(c.stderr, c.show(r.Line()))
		if r.Text != "" {
			fmt.Fprintf(c.stderr, "    %s\n", c.show(r.Text))
		}
		if r.Left {
			left++
		}
	}
	fmt.Fprintf(c.stderr, "%s and %s from %s; %d left out\n",
		plural(len(result.Rules.Rules), "rule"), plural(len(result.Rules.Tables), "table"),
		c.show(result.Form), left)
	return nil
}

// sources reads the files of the command line, or stdin when there are none. A directory is that
// of ufw.
func (c *call) sources() (all []netfilter.Source, err error) {
	paths := c.Args()
	if len(paths) == 0 {
		paths = []string{"-"}
	}
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			files, err := c.directory(path)
			if err != nil {
				return nil, err
			}
			all = append(all, files...)
			continue
		}
		name, text, err := c.readFile(path)
		if err != nil {
			return nil, err
		}
		all = append(all, netfilter.Source{Name: name, Text: text})
	}
	return all, nil
}

// directory reads the files of ufw.
func (c *call) directory(dir string) (all []netfilter.Source, err error) {
	for _, path := range netfilter.UFWFiles(dir) {
		name, text, err := c.readFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		all = append(all, netfilter.Source{Name: name, Text: text})
	}
	if len(all) == 0 {
		return nil, advice{fmt.Errorf("%s: the directory does not have the files of ufw "+
			"(before.rules, ...)", dir), "they are in /etc/ufw"}
	}
	return all, nil
}

// importOptions returns the networks of --network, or else the networks and local routes of this
// host.
func importOptions(given []string) (o netfilter.Options, err error) {
	for _, text := range given {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return o, fmt.Errorf("--network %q is not a prefix like 192.0.2.0/24", text)
		}
		o.Networks = append(o.Networks, p)
	}
	if len(given) > 0 {
		return o, nil
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return o, err
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLoopback() {
			o.Networks = append(o.Networks, p)
		}
	}
	o.Local, err = routes.ToHost()
	return o, err
}
