package main

import (
	"errors"
	"time"

	"github.com/weirnet/weir/store/cluster"
)

// trialTime is the value of --confirm: how long rules are on trial. Without the flag it is the
// default of the command, of which 0 means no trial. A flag with 0 is refused: who gives one
// wants a trial.
type trialTime time.Duration

// Set implements pflag.Value.
func (t *trialTime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	if cluster.CheckTrial(d) != nil {
		return errors.New("a trial takes between 1s and 1h")
	}
	*t = trialTime(d)
	return nil
}

// String implements pflag.Value. It is empty without a trial, so that the help shows no default.
func (t *trialTime) String() string {
	if *t == 0 {
		return ""
	}
	return time.Duration(*t).String()
}

// Type implements pflag.Value.
func (t *trialTime) Type() string { return "duration" }

// positiveTime is the value of a flag that no one wants negative: a time of a wait or a bound.
type positiveTime time.Duration

// Set implements pflag.Value.
func (t *positiveTime) Set(text string) error {
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = errors.New("a time is not negative")
	}
	if err == nil {
		*t = positiveTime(d)
	}
	return err
}

// String implements pflag.Value. It is empty for 0, so that the help shows no default.
func (t *positiveTime) String() string { return (*trialTime)(t).String() }

// Type implements pflag.Value.
func (t *positiveTime) Type() string { return "duration" }

// Duration declares a flag with a time, in place of pflag's, which takes negative ones.
func (c *call) Duration(name string, def time.Duration, usage string) *time.Duration {
	t := def
	c.Var((*positiveTime)(&t), name, usage)
	return &t
}

// trialFlag declares --confirm.
func (c *call) trialFlag(def time.Duration, usage string) *time.Duration {
	t := def
	c.Var((*trialTime)(&t), "confirm", usage)
	return &t
}
