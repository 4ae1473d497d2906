package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
)

// Codes of this plugin, besides those of the specification.
const (
	CodeAgent  uint = 100 // the agent refused
	CodeCheck  uint = 101 // CHECK found the network changed
	CodeIPAM   uint = 102 // the delegated IPAM plugin failed or returned nothing usable
	CodeBroken uint = 103 // the result could not be written
)

// ErrBusy is what an error of the agent is (errors.Is) that answers, and cannot do yet what it is
// asked for. The caller may try again later.
var ErrBusy = errors.New("the agent cannot do that yet")

func fail(code uint, details, format string, a ...any) *types.Error {
	return &types.Error{Code: code, Msg: fmt.Sprintf(format, a...), Details: details}
}

// fromAgent turns an error of the agent into an error object. An agent that cannot be reached, or
// is busy, gets code 11, on which the runtime tries again.
func fromAgent(what string, err error) *types.Error {
	var object *types.Error
	if errors.As(err, &object) {
		return object
	}
	var temporary interface{ Temporary() bool }
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &temporary) &&
		temporary.Temporary() {
		return fail(types.ErrTryAgainLater,
			"start it with 'weir up', or see 'journalctl -u weir'; the configuration's \"root\" "+
				"must be the agent's --root",
			"%s: the weir agent does not answer: %v", what, err)
	}
	code := CodeAgent
	if errors.Is(err, ErrBusy) {
		code = types.ErrTryAgainLater
	}
	details := "'weir pod list' and 'weir status' show the state of the node"
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		details = hinted.Hint()
	}
	return fail(code, details, "%s: %v", what, err)
}
