package rulefile

import (
	"fmt"

	"github.com/weirnet/weir/rule"
)

// errEmpty refuses a rule file without a rule: it would deny everything, and is more often cut
// short than meant.
type errEmpty struct{ name string }

func (e errEmpty) Error() string {
	return fmt.Sprintf("%s holds no rule: in force it would deny everything", e.name)
}

// Hint returns what to write instead.
func (errEmpty) Hint() string {
	return "if that is meant, write `add deny ip from any to any`; weir fw flush -f removes rules"
}

// notEmpty refuses a rule set that the owner gives and that holds no rule.
func notEmpty(name string, set *rule.Ruleset) error {
	if len(set.Rules) == 0 {
		return errEmpty{name}
	}
	return nil
}
