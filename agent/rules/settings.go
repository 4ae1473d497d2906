package rules

import "fmt"

// Settings are what weir.toml sets about the rules.
type Settings struct {
	// SSH reports whether ssh is let in while the host is locked down for want of rules.
	SSH SSH
}

// DefaultSettings are the settings when nothing is set.
func DefaultSettings() Settings { return Settings{SSH: SSHAsRules} }

// File is the section [lock_down] as it is written.
type File struct {
	SSH string `toml:"ssh"`
}

// Apply lays the section over its defaults.
func (f *File) Apply(s *Settings) error {
	switch ssh := SSH(f.SSH); ssh {
	case "":
	case SSHAsRules, SSHAlways, SSHNever:
		s.SSH = ssh
	default:
		return fmt.Errorf(`lock_down.ssh: %q is not "rules", "always" or "never"`, ssh)
	}
	return nil
}
