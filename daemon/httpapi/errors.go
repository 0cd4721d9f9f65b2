package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"syscall"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
)

// statuses is the one table from codes to HTTP.
var statuses = map[api.Code]int{
	api.CodeInvalid:          http.StatusBadRequest,
	api.CodeUnauthenticated:  http.StatusUnauthorized,
	api.CodeForbidden:        http.StatusForbidden,
	api.CodeChatNotFound:     http.StatusNotFound,
	api.CodeCommandNotFound:  http.StatusNotFound,
	api.CodeCellNotFound:     http.StatusNotFound,
	api.CodeFileNotFound:     http.StatusNotFound,
	api.CodeFileExists:       http.StatusConflict,
	api.CodeDiskFull:         http.StatusInsufficientStorage,
	api.CodeSkillNotFound:    http.StatusNotFound,
	api.CodeSkillInvalid:     http.StatusUnprocessableEntity,
	api.CodeRouteNotFound:    http.StatusNotFound,
	api.CodeMethodNotAllowed: http.StatusMethodNotAllowed,
	api.CodeChatExists:       http.StatusConflict,
	api.CodeCommandEnded:     http.StatusConflict,
	api.CodeTurnSpent:        http.StatusTooManyRequests,
	api.CodeTurnClosed:       http.StatusConflict,
	api.CodeIdempotency:      http.StatusConflict,
	api.CodeTooLarge:         http.StatusRequestEntityTooLarge,
	api.CodeHostFull:         http.StatusServiceUnavailable,
	api.CodeAccountFull:      http.StatusTooManyRequests,
	api.CodeUnavailable:      http.StatusServiceUnavailable,
	api.CodeInternal:         http.StatusInternalServerError,
}

// seeOpenAPI is the hint for a request that does not fit.
const seeOpenAPI = "GET /v1/openapi.json describes the request"

// wireError is an error as it is answered.
type wireError struct {
	Body *api.Error `json:"error"`
}

// Error implements error.
func (e *wireError) Error() string { return e.Body.Message }

// GetStatus implements huma.StatusError.
func (e *wireError) GetStatus() int {
	if status, ok := statuses[e.Body.Code]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// The library's own refusals (a body that does not fit, an unknown parameter)
// get the same form. The hook is the library's and is global.
func init() {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError { return newError(status, msg, errs...) }
	huma.NewErrorWithContext = func(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
		e := newError(status, msg, errs...)
		e.Body.RequestID = callerOf(ctx.Context()).request
		return e
	}
}

func newError(status int, msg string, errs ...error) *wireError {
	code := api.CodeInvalid
	switch {
	case status == http.StatusRequestEntityTooLarge:
		code = api.CodeTooLarge
	case status == http.StatusMethodNotAllowed:
		code = api.CodeMethodNotAllowed
	case status >= 500:
		code = api.CodeInternal
	}
	var details []string
	for _, err := range errs {
		if err == nil {
			continue
		}
		var d huma.ErrorDetailer
		if errors.As(err, &d) {
			detail := d.ErrorDetail()
			details = append(details, strings.TrimPrefix(detail.Location, "body.")+": "+detail.Message)
			continue
		}
		details = append(details, err.Error())
	}
	if len(details) > 0 && code != api.CodeInternal {
		msg = strings.Join(details, "; ")
	}
	e := api.Errorf(code, "%s", msg)
	if code == api.CodeInvalid {
		e.Hint = seeOpenAPI
	}
	return &wireError{e}
}

// wire turns any error into an answer. What is not meant for the caller is
// logged under the request's id, and the caller gets the id.
func (s *server) wire(ctx context.Context, err error) *wireError {
	id := callerOf(ctx).request
	var known *api.Error
	if errors.As(err, &known) {
		e := *known
		e.RequestID = id
		return &wireError{&e}
	}
	if !isCanceled(err) {
		s.cfg.Log.Error("request", "request_id", id, "error", err)
	}
	if errors.Is(err, syscall.ENOSPC) {
		e := api.Errorf(api.CodeHostFull, "the host's disk is full").WithHint("its operator has to make room below the daemon's state directory").CanRetry()
		e.RequestID = id
		return &wireError{e}
	}
	e := api.Errorf(api.CodeInternal, "the daemon could not do this").
		WithHint("look for request_id %s in its log (journalctl -u media-sandbox)", id)
	e.RequestID = id
	return &wireError{e}
}

// fail answers an error outside of the library.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	e := s.wire(r.Context(), err)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.GetStatus())
	_ = json.NewEncoder(w).Encode(e) // the caller may have gone away
}
