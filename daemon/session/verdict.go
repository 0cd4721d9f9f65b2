package session

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"mediasandbox/daemon/api"
	"mediasandbox/runtime/sandbox"
)

// verdict is how a command ended.
type verdict struct {
	state  api.State
	reason string
	code   *int
	signal int
	// left counts the processes that the main one left behind.
	left int
}

// judge tells the truth about the end of a command.
func (e *Engine) judge(r *running, l *live, st sandbox.Status) verdict {
	v := e.judgeEnd(r, l, st)
	if st.PIDsRefused {
		note := fmt.Sprintf("the sandbox reached its limit of %d processes", l.record.Spec.Limits.PIDs)
		v.reason = strings.TrimPrefix(v.reason+"; "+note, "; ")
	}
	return v
}

func (e *Engine) judgeEnd(r *running, l *live, st sandbox.Status) verdict {
	cause := context.Cause(r.ctx)
	switch {
	case errors.Is(cause, errTimedOut):
		return verdict{state: api.StateTimedOut, reason: fmt.Sprintf("it ran into its timeout of %g s", r.record().Timeout)}
	case errors.Is(cause, errCanceled):
		return verdict{state: api.StateCanceled, reason: errCanceled.Error()}
	case errors.Is(st.Err, sandbox.ErrGone):
		<-l.handle.Done()
		exit := l.handle.Exit()
		if exit.OOM {
			return verdict{state: api.StateOOMKilled, reason: exit.Reason}
		}
		return verdict{state: api.StateLost, reason: "its sandbox ended under it: " + exit.Reason}
	case errors.Is(st.Err, sandbox.ErrNoProcess):
		return verdict{state: api.StateLost, reason: "the daemon ended before it was started"}
	case st.Err != nil:
		return verdict{state: api.StateLost, reason: st.Err.Error()}
	case st.Signal != 0:
		return verdict{state: api.StateFailed, reason: fmt.Sprintf("signal %d ended it", st.Signal), signal: st.Signal, left: st.Left}
	case st.Code != 0:
		return verdict{state: api.StateFailed, reason: fmt.Sprintf("exit code %d", st.Code), code: &st.Code, left: st.Left}
	}
	return verdict{state: api.StateSucceeded, code: &st.Code, left: st.Left}
}
