package agent

import (
	"os"

	"github.com/weirnet/weir/rule"
)

// SystemNames are the names of services and protocols of this machine, beside those that Weir knows by itself. A machine
// without these files has just fewer names.
func SystemNames() *rule.Names {
	n := new(rule.Names)
	for _, from := range []struct {
		path string
		read func(*os.File) error
	}{
		{"/etc/services", func(f *os.File) error { return n.ReadServices(f) }},
		{"/etc/protocols", func(f *os.File) error { return n.ReadProtocols(f) }},
	} {
		f, err := os.Open(from.path)
		if err != nil {
			continue
		}
		from.read(f) // a file that ends early gives fewer names, too
		f.Close()
	}
	return n
}

// Check reads a rule file and makes sure that it can be enforced, without a node and without rights.
func Check(name, text string) (*rule.Ruleset, error) {
	return rule.ParseFile(name, text, SystemNames())
}
