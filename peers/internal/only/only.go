// Package only selects parts of a benchmark by a flag.
package only

import (
	"fmt"
	"slices"
	"strings"
)

// Parts returns whether a part was chosen by names separated by commas; by none every part is. It
// refuses a name that no part has.
func Parts(chosen string, all ...string) (run func(part string) bool, err error) {
	if chosen == "" {
		return func(string) bool { return true }, nil
	}
	list := strings.Split(chosen, ",")
	for _, name := range list {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("-only: there is no part %q; there are %s", name,
				strings.Join(all, ", "))
		}
	}
	return func(part string) bool { return slices.Contains(list, part) }, nil
}
