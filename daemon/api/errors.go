package api

import "fmt"

// Code names a kind of error. Codes are stable; messages are for people.
type Code string

// The codes.
const (
	CodeInvalid          Code = "invalid_argument"
	CodeUnauthenticated  Code = "unauthenticated"
	CodeForbidden        Code = "forbidden"
	CodeChatNotFound     Code = "chat_not_found"
	CodeCommandNotFound  Code = "command_not_found"
	CodeCellNotFound     Code = "cell_not_found"
	CodeFileNotFound     Code = "file_not_found"
	CodeFileExists       Code = "file_exists"
	CodeDiskFull         Code = "disk_full"
	CodeSkillNotFound    Code = "skill_not_found"
	CodeSkillInvalid     Code = "skill_invalid"
	CodeRouteNotFound    Code = "route_not_found"
	CodeMethodNotAllowed Code = "method_not_allowed"
	CodeChatExists       Code = "chat_exists"
	CodeCommandEnded     Code = "command_ended"
	CodeTurnSpent        Code = "turn_budget_spent"
	CodeTurnClosed       Code = "turn_closed"
	CodeIdempotency      Code = "idempotency_conflict"
	CodeTooLarge         Code = "too_large"
	CodeHostFull         Code = "host_full"
	CodeAccountFull      Code = "account_full"
	CodeUnavailable      Code = "unavailable"
	CodeInternal         Code = "internal"
)

// Error is what every failed request answers, as {"error": …}.
type Error struct {
	Code      Code   `json:"code"`
	Message   string `json:"message" doc:"What was wrong, in one line."`
	Hint      string `json:"hint,omitempty" doc:"What to do about it."`
	Retryable bool   `json:"retryable" doc:"Whether the same request may succeed later."`
	RequestID string `json:"request_id,omitempty" doc:"Names the request in the daemon's log."`
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// ErrorBody is the envelope.
type ErrorBody struct {
	Error *Error `json:"error"`
}

// Errorf makes an error of that code.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithHint returns e with a hint.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// CanRetry returns e marked as retryable.
func (e *Error) CanRetry() *Error {
	e.Retryable = true
	return e
}
