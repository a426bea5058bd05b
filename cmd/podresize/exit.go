package main

import (
	"context"
	"errors"
	"strings"

	"github.com/podresize/podresize/resize"
)

// Exit codes: docs/cli.md has the same table.
const (
	exitOther             = 1
	exitUsage             = 2
	exitPodNotFound       = 3
	exitUnknownContainer  = 4
	exitInvalidQuantity   = 5
	exitNoChange          = 6
	exitForbidden         = 7
	exitAgentNotReady     = 8
	exitInfeasible        = 9
	exitRefused           = 10
	exitDeferred          = 11
	exitNotConfirmed      = 12
	exitInvalidPolicy     = 13
	exitInterrupted       = 130 // as a shell has it for SIGINT
	reasonNoChange        = "NoChange"
	reasonInvalidPolicy   = "InvalidPolicy"
	reasonInvalidQuantity = string(resize.ReasonInvalidQuantity)
)

// commandError is what a command ends with when it does not succeed.
type commandError struct {
	code   int
	reason string
	err    error
	said   bool // the command's output says it already
}

func (e *commandError) Error() string { return e.reason + ": " + e.err.Error() }
func (e *commandError) Unwrap() error { return e.err }

func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var command *commandError
	if errors.As(err, &command) {
		return command.code
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	var failure *resize.Error
	if errors.As(err, &failure) {
		switch failure.Reason {
		case resize.ReasonForbidden:
			return exitForbidden
		case resize.ReasonPodNotFound:
			return exitPodNotFound
		default:
		}
	}
	return exitOther
}

// fromFailure puts the reason of a resize.Error in front.
func fromFailure(err error) error {
	var failure *resize.Error
	if errors.As(err, &failure) {
		return &commandError{code: exitCode(err), reason: string(failure.Reason), err: err}
	}
	return err
}

// fromResult gives the error that a result stands for; nil: the change is done, or on its way.
func fromResult(res resize.Result) error {
	code := 0
	switch res.State {
	case resize.StateDone, resize.StateInProgress:
		return nil
	case resize.StateInfeasible:
		code = exitInfeasible
	case resize.StateRefused:
		code = exitRefused
	case resize.StateDeferred:
		code = exitDeferred
	case resize.StateUnconfirmed:
		code = exitNotConfirmed
	}
	switch res.Reason {
	case resize.ReasonUnknownContainer:
		code = exitUnknownContainer
	case resize.ReasonInvalidQuantity:
		code = exitInvalidQuantity
	case resize.ReasonAgentNotReady:
		code = exitAgentNotReady
	case resize.ReasonForbidden:
		code = exitForbidden
	default:
	}
	return &commandError{code: code, reason: string(res.Reason), err: errors.New(res.Message)}
}

// oneLine keeps an error on one line: runtimes and webhooks send newlines.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
