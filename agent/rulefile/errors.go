package rulefile

import (
	"errors"

	"github.com/weirnet/weir/rule"
)

// ParseErrors returns the errors of rule text that err holds, each with its place, nil if there are
// none.
func ParseErrors(err error) rule.Errors {
	var many rule.Errors
	var one *rule.Error
	switch {
	case errors.As(err, &many):
		return many
	case errors.As(err, &one):
		return rule.Errors{one}
	}
	return nil
}
