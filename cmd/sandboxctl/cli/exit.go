package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"mediasandbox/daemon/api"
)

// The exit codes of sandboxctl beside a command's own.
const (
	exitDiffers   = 1
	exitUsage     = 2
	exitGoesOn    = 3
	exitTimedOut  = 124
	exitProduct   = 125
	exitKilled    = 137
	exitInterrupt = 130
	exitPipe      = 141 // as a shell reports SIGPIPE
	exitSignal    = 128 // plus the signal's number
)

const exitCodesHelp = `
EXIT CODES:
   replay exits with 1 when the file differs or was not made again.
   run and wait exit with the command's own code, and otherwise with
   2    wrong usage or input
   3    the turn's budget is spent and the command goes on
   124  the command ran into its timeout
   125  the product itself failed
   130  interrupted
   137  the command was killed or ran out of memory; a line says which
`

// exitStatus is an exit code with an optional line for the user.
type exitStatus struct {
	code    int
	message string
}

// Error implements error.
func (e exitStatus) Error() string { return e.message }

func usagef(format string, args ...any) error {
	return exitStatus{exitUsage, fmt.Sprintf(format, args...)}
}

// exitCode says with which code an error ends the program.
func exitCode(err error) int {
	var status exitStatus
	var known *api.Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return status.code
	case isBrokenPipe(err):
		return exitPipe
	case errors.Is(err, context.Canceled):
		return exitInterrupt
	case errors.As(err, &known):
		switch known.Code {
		case api.CodeInternal, api.CodeUnavailable, api.CodeHostFull:
			return exitProduct
		}
		return exitUsage
	}
	return exitProduct
}

// isBrokenPipe tells whether whoever reads our output has gone away.
func isBrokenPipe(err error) bool {
	var output *fs.PathError
	return errors.As(err, &output) && errors.Is(err, syscall.EPIPE)
}

// endOf turns the end of a command into the end of the program.
func endOf(c api.Command) error {
	switch c.State {
	case api.StateSucceeded:
		return nil
	case api.StateFailed:
		switch {
		case c.ExitCode != nil && c.Reason == fmt.Sprintf("exit code %d", *c.ExitCode):
			return exitStatus{*c.ExitCode, ""}
		case c.ExitCode != nil:
			return exitStatus{*c.ExitCode, "the command failed: " + c.Reason}
		case c.Signal != 0:
			return exitStatus{exitSignal + c.Signal, fmt.Sprintf("the command failed: %s", c.Reason)}
		}
		return exitStatus{exitProduct, "the command failed: " + c.Reason}
	case api.StateTimedOut:
		return exitStatus{exitTimedOut, "the command timed out: " + c.Reason}
	case api.StateCanceled:
		return exitStatus{exitKilled, "the command was canceled"}
	case api.StateOOMKilled:
		return exitStatus{exitKilled, "the command ran out of memory: " + c.Reason}
	case api.StateLost:
		return exitStatus{exitProduct, "the command is lost: " + c.Reason}
	}
	return exitStatus{exitGoesOn, fmt.Sprintf("the command goes on: wait for it with `sandboxctl wait --chat %s %s`", c.Chat, c.ID)}
}
