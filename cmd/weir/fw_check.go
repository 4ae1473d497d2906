package main

import (
	"fmt"

	"github.com/weirnet/weir/agent/rulefile"
)

type checkAnswer struct {
	Version int       `json:"version"`
	File    string    `json:"file"`
	Fine    bool      `json:"fine"`
	Rules   int       `json:"rules"`
	Tables  int       `json:"tables"`
	Errors  []mistake `json:"errors,omitempty"`
	// who else could change the file
	Warnings []string `json:"warnings,omitempty"`
}

type mistake struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	Text    string `json:"text"`
}

func fwCheckCommand(c *call) action {
	asJSON := c.json("")
	c.takes(1, 1)
	return func() error {
		name, text, err := c.readFile(c.Arg(0))
		if err != nil {
			return fmt.Errorf("fw check: %w", err)
		}
		set, err := rulefile.Check(name, text)
		if !*asJSON {
			if err != nil {
				return fmt.Errorf("fw check: %w", err)
			}
			fmt.Fprintf(c.out, "%s is fine: %s, %s\n", c.show(name), plural(len(set.Rules), "rule"),
				plural(len(set.Tables), "table"))
			c.warn(c.fileWarnings(nil))
			return nil
		}
		a := checkAnswer{Version: 1, File: name, Fine: err == nil, Warnings: c.fileWarnings(nil)}
		if err != nil {
			a.Errors = mistakes(err)
			if err := printJSON(c.out, a); err != nil {
				return err
			}
			return statusError(1)
		}
		a.Rules, a.Tables = len(set.Rules), len(set.Tables)
		return printJSON(c.out, a)
	}
}

// mistakes lists the errors of a rule file.
func mistakes(err error) []mistake {
	many := rulefile.ParseErrors(err)
	if many == nil {
		return []mistake{{Message: err.Error()}}
	}
	var all []mistake
	for _, e := range many {
		all = append(all, mistake{e.Pos.Line, e.Pos.Col, e.Msg, e.Hint, e.Text})
	}
	return all
}
