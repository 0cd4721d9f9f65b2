package s3

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"mediasandbox/uploader"
)

// kinds are the service's error codes that retrying does not cure.
var kinds = map[string]error{
	"NoSuchKey":             uploader.ErrNotFound,
	"NotFound":              uploader.ErrNotFound,
	"NoSuchBucket":          uploader.ErrNoBucket,
	"AccessDenied":          uploader.ErrDenied,
	"Forbidden":             uploader.ErrDenied,
	"InvalidAccessKeyId":    uploader.ErrDenied,
	"SignatureDoesNotMatch": uploader.ErrDenied,
	"InvalidToken":          uploader.ErrDenied,
	"ExpiredToken":          uploader.ErrDenied,
	"AccountProblem":        uploader.ErrDenied,
	"XAdminUserNotFound":    uploader.ErrDenied, // versitygw
}

// code returns the service's code for err, or "".
func code(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// explain says in one line what the service answered to what was being done.
// Errors of the way there keep their cause.
func (s *Store) explain(doing, key string, err error) error {
	where := fmt.Sprintf("bucket %s", s.cfg.Bucket)
	if s.cfg.Endpoint != "" {
		where += " at " + s.cfg.Endpoint
	}
	what := strings.TrimSpace(doing + " " + uploader.Path(key).String())
	var api smithy.APIError
	if !errors.As(err, &api) {
		return fmt.Errorf("%s in %s: %w", what, where, err)
	}
	answer := strings.TrimSuffix(api.ErrorMessage(), ".")
	if answer == "" || answer == api.ErrorCode() {
		answer = api.ErrorCode()
	} else {
		answer = api.ErrorCode() + ": " + answer
	}
	kind := kinds[api.ErrorCode()]
	var resp *smithyhttp.ResponseError
	if kind == nil && errors.As(err, &resp) && (resp.HTTPStatusCode() == http.StatusForbidden || resp.HTTPStatusCode() == http.StatusUnauthorized) {
		kind = uploader.ErrDenied
	}
	if kind != nil {
		return fmt.Errorf("%s in %s: %w (%s)", what, where, kind, answer)
	}
	return fmt.Errorf("%s in %s: %s", what, where, answer)
}
