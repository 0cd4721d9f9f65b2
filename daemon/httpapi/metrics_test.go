package httpapi_test

import (
	"os"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

// TestMetricsAreForOperators asks as root, as an operator, and as users who
// must not learn of each other.
func TestMetricsAreForOperators(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Access.OperatorUIDs = []uint32{1001} })
	openTo(t, d)
	if err := os.Chmod(d.Socket(), 0o666); err != nil {
		t.Fatal(err)
	}
	for who, id := range map[string]int{"root": 0, "an operator": 1001} {
		got := callerAs(t, d, id).do("GET", "/metrics", "")
		if got.status != 200 || !strings.Contains(got.body, "media_sandbox_build_info{") {
			t.Errorf("%s: %d %.200s", who, got.status, got.body)
		}
	}
	user := callerAs(t, d, 65534)
	for _, header := range [][]string{nil, {api.AccountHeader, "uid:65534"}} {
		got := user.do("GET", "/metrics", "", header...)
		if e := got.refusal(t); got.status != 403 || e.Code != api.CodeForbidden || e.Hint == "" {
			t.Errorf("a user: %d %.200s", got.status, got.body)
		}
	}
	if got := user.do("POST", "/metrics", ""); got.refusal(t).Code != api.CodeMethodNotAllowed {
		t.Errorf("another method: %d", got.status)
	}
}
