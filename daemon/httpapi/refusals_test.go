package httpapi_test

import (
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
)

func TestEveryRefusalIsTheSameEnvelope(t *testing.T) {
	d := daemontest.Start(t)
	d.Shell("echo x >/workspace/x; ln -s /etc/passwd /workspace/link; mkfifo /workspace/fifo")
	c := callerAs(t, d, 0)
	long := strings.Repeat("x", 5<<20)
	const chat = "/v1/chats/default"
	for name, tt := range map[string]struct {
		method, target, body string
		status               int
		code                 api.Code
		message              string
	}{
		"unknown route":         {"GET", "/v1/nothing", "", 404, api.CodeRouteNotFound, "there is no GET /v1/nothing"},
		"root":                  {"GET", "/", "", 404, api.CodeRouteNotFound, ""},
		"no docs page":          {"GET", "/docs", "", 404, api.CodeRouteNotFound, ""},
		"route with a slash":    {"GET", "/v1/info/", "", 404, api.CodeRouteNotFound, "not clean"},
		"route with dots":       {"GET", "/v1/chats/../info", "", 404, api.CodeRouteNotFound, "not clean"},
		"route with slashes":    {"GET", "//v1//info", "", 404, api.CodeRouteNotFound, "not clean"},
		"wrong method":          {"POST", "/v1/info", "{}", 405, api.CodeMethodNotAllowed, "there is no POST /v1/info"},
		"wrong method, raw":     {"POST", chat + "/files/content?path=/workspace/x", "", 405, api.CodeMethodNotAllowed, ""},
		"strange method":        {"BREW", chat, "", 405, api.CodeMethodNotAllowed, "BREW"},
		"no JSON":               {"POST", "/v1/chats", "{", 400, api.CodeInvalid, ""},
		"empty body":            {"POST", "/v1/chats", "", 400, api.CodeInvalid, "body"},
		"two objects":           {"POST", "/v1/chats", "{}{}", 400, api.CodeInvalid, ""},
		"list for an object":    {"POST", "/v1/chats", "[]", 400, api.CodeInvalid, "object"},
		"unknown field":         {"POST", "/v1/chats", `{"nmae":"x"}`, 400, api.CodeInvalid, "nmae"},
		"wrong type":            {"POST", chat + "/commands", `{"argv":"true"}`, 400, api.CodeInvalid, "argv"},
		"not in the list":       {"POST", chat + "/commands", `{"argv":["true"],"kind":"movie"}`, 400, api.CodeInvalid, "kind"},
		"negative timeout":      {"POST", chat + "/commands", `{"argv":["true"],"timeout_seconds":-1}`, 400, api.CodeInvalid, "timeout"},
		"long timeout":          {"POST", chat + "/commands", `{"argv":["true"],"timeout_seconds":601}`, 400, api.CodeInvalid, "timeout of 601 s"},
		"nothing to run":        {"POST", chat + "/commands", `{}`, 400, api.CodeInvalid, "0 of argv, shell and python"},
		"two to run":            {"POST", chat + "/commands", `{"shell":"true","python":"1"}`, 400, api.CodeInvalid, "2 of argv"},
		"NUL in an argument":    {"POST", chat + "/commands", `{"argv":["a\u0000b"]}`, 400, api.CodeInvalid, "NUL"},
		"bad environment":       {"POST", chat + "/commands", `{"argv":["a"],"env":{"A=B":"c"}}`, 400, api.CodeInvalid, "A=B"},
		"long arguments":        {"POST", chat + "/commands", `{"argv":["` + long[:api.MaxArgs+1] + `"]}`, 413, api.CodeTooLarge, "arguments"},
		"long source":           {"POST", chat + "/commands", `{"python":"` + long[:api.MaxSource+1] + `"}`, 413, api.CodeTooLarge, "source"},
		"large body":            {"POST", chat + "/commands", `{"python":"` + long + `"}`, 413, api.CodeTooLarge, ""},
		"unknown query":         {"GET", chat + "?colour=red", "", 400, api.CodeInvalid, "colour"},
		"unknown query, raw":    {"GET", chat + "/files/content?path=/workspace/x&colour=red", "", 400, api.CodeInvalid, "colour"},
		"path twice":            {"GET", chat + "/files/content?path=/workspace/x&path=/workspace/y", "", 400, api.CodeInvalid, "once"},
		"broken query":          {"GET", chat + "/files/content?path=%zz", "", 400, api.CodeInvalid, "query"},
		"wrong query type":      {"GET", chat + "/commands/x-1?wait=soon", "", 400, api.CodeInvalid, "wait"},
		"wait out of bounds":    {"GET", chat + "/commands/x-1?wait=601", "", 400, api.CodeInvalid, "wait"},
		"signal out of bounds":  {"POST", chat + "/commands/x-1/kill?signal=65", "", 400, api.CodeInvalid, "signal"},
		"bad chat id":           {"POST", "/v1/chats", `{"id":"a/b"}`, 400, api.CodeInvalid, `"a/b"`},
		"unknown chat":          {"GET", "/v1/chats/nowhere", "", 404, api.CodeChatNotFound, `"nowhere"`},
		"unknown chat, escaped": {"GET", "/v1/chats/a%2Fdefault", "", 404, api.CodeChatNotFound, `"a/default"`},
		"unknown chat, delete":  {"DELETE", "/v1/chats/nowhere", "", 404, api.CodeChatNotFound, ""},
		"unknown chat, cells":   {"GET", "/v1/chats/nowhere/cells", "", 404, api.CodeChatNotFound, ""},
		"unknown chat, events":  {"GET", "/v1/chats/nowhere/events", "", 404, api.CodeChatNotFound, ""},
		"unknown chat, files":   {"GET", "/v1/chats/nowhere/files?path=/workspace", "", 404, api.CodeChatNotFound, ""},
		"unknown chat, put":     {"PUT", "/v1/chats/nowhere/files/content?path=/workspace/x", "x", 404, api.CodeChatNotFound, ""},
		"long chat":             {"GET", "/v1/chats/" + long[:1000], "", 400, api.CodeInvalid, "chat"},
		"unknown command":       {"GET", chat + "/commands/x-1", "", 404, api.CodeCommandNotFound, `"x-1"`},
		"unknown command, out":  {"GET", chat + "/commands/x-1/output", "", 404, api.CodeCommandNotFound, `"x-1"`},
		"unknown command, kill": {"POST", chat + "/commands/x-1/kill", "", 404, api.CodeCommandNotFound, `"x-1"`},
		"unknown cell":          {"GET", chat + "/cells/7", "", 404, api.CodeCellNotFound, "#7"},
		"unknown cell, content": {"GET", chat + "/cells/7/content", "", 404, api.CodeCellNotFound, "#7"},
		"cell of no number":     {"GET", chat + "/cells/x", "", 400, api.CodeInvalid, "ordinal"},
		"cell 0":                {"GET", chat + "/cells/0", "", 400, api.CodeInvalid, "ordinal"},
		"content of no number":  {"GET", chat + "/cells/x/content", "", 400, api.CodeInvalid, "ordinal"},
		"content of a big one":  {"GET", chat + "/cells/99999999999999999999/content", "", 400, api.CodeInvalid, "ordinal"},
		"event id of no number": {"GET", chat + "/events?after=x", "", 400, api.CodeInvalid, `"x"`},
		"unknown file":          {"GET", chat + "/files/content?path=/workspace/none", "", 404, api.CodeFileNotFound, "/workspace/none"},
		"unknown file, stat":    {"GET", chat + "/files/stat?path=/workspace/none", "", 404, api.CodeFileNotFound, "/workspace/none"},
		"unknown file, move":    {"POST", chat + "/files/move", `{"from":"/workspace/none","to":"/workspace/y"}`, 404, api.CodeFileNotFound, "/workspace/none"},
		"move onto a file":      {"POST", chat + "/files/move", `{"from":"/workspace/link","to":"/workspace/x"}`, 409, api.CodeFileExists, "/workspace/x exists"},
		"move out of inputs":    {"POST", chat + "/files/move", `{"from":"/inputs/x","to":"/workspace/y"}`, 400, api.CodeInvalid, "/inputs holds"},
		"tree of a file":        {"GET", chat + "/files/tree?path=/workspace/x", "", 400, api.CodeInvalid, "not a directory"},
		"tree that is none":     {"PUT", chat + "/files/tree?path=/workspace/t", strings.Repeat("x", 2000), 400, api.CodeInvalid, "tar"},
		"tree onto a file":      {"PUT", chat + "/files/tree?path=/workspace/x", "", 409, api.CodeFileExists, "/workspace/x exists"},
		"tree, odd replace":     {"PUT", chat + "/files/tree?path=/workspace/t&replace=maybe", "", 400, api.CodeInvalid, "maybe"},
		"unknown directory":     {"GET", chat + "/files?path=/workspace/none", "", 404, api.CodeFileNotFound, "/workspace/none"},
		"no path":               {"GET", chat + "/files/content", "", 400, api.CodeInvalid, "path"},
		"relative path":         {"GET", chat + "/files/content?path=x", "", 400, api.CodeInvalid, "not absolute"},
		"another directory":     {"GET", chat + "/files/content?path=/etc/passwd", "", 400, api.CodeInvalid, "not below"},
		"traversal":             {"GET", chat + "/files/content?path=/workspace/../../../etc/passwd", "", 400, api.CodeInvalid, "not below"},
		"traversal, escaped":    {"GET", chat + "/files/content?path=%2fworkspace%2f..%2f..%2fetc%2fpasswd", "", 400, api.CodeInvalid, "not below"},
		"traversal, list":       {"GET", chat + "/files?path=/workspace/../disks", "", 400, api.CodeInvalid, "not below"},
		"traversal, put":        {"PUT", chat + "/files/content?path=/inputs/../../x", "x", 400, api.CodeInvalid, "not below"},
		"traversal, delete":     {"DELETE", chat + "/files?path=/outputs/../..", "", 400, api.CodeInvalid, "not below"},
		"NUL in a path":         {"GET", chat + "/files/content?path=/workspace/a%00b", "", 400, api.CodeInvalid, ""},
		"link out of the guest": {"GET", chat + "/files/content?path=/workspace/link", "", 400, api.CodeInvalid, "/workspace/link"},
		"named pipe":            {"GET", chat + "/files/content?path=/workspace/fifo", "", 404, api.CodeFileNotFound, ""},
		"directory as a file":   {"GET", chat + "/files/content?path=/workspace", "", 400, api.CodeInvalid, "not a regular file"},
		"file as a directory":   {"GET", chat + "/files?path=/workspace/x", "", 400, api.CodeInvalid, "/workspace/x"},
		"put to a directory":    {"PUT", chat + "/files/content?path=/workspace", "x", 400, api.CodeInvalid, "itself can't be replaced or removed"},
		"put below a file":      {"PUT", chat + "/files/content?path=/workspace/x/y", "x", 400, api.CodeInvalid, ""},
		"put through a link":    {"PUT", chat + "/files/content?path=/workspace/link/y", "x", 400, api.CodeInvalid, ""},
		"delete of the root":    {"DELETE", chat + "/files?path=/workspace", "", 400, api.CodeInvalid, "itself can't be replaced or removed"},
		"delete of nothing":     {"DELETE", chat + "/files?path=/workspace/none", "", 404, api.CodeFileNotFound, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := c.do(tt.method, tt.target, tt.body, "Content-Type", "application/json")
			e := a.refusal(t)
			if a.status != tt.status || e.Code != tt.code || !strings.Contains(e.Message, tt.message) {
				t.Errorf("%d %s, want %d %s with %q", a.status, a.body, tt.status, tt.code, tt.message)
			}
			if strings.Contains(a.body, d.Dir) || strings.Contains(a.body, ".go:") {
				t.Errorf("it tells of the host: %s", a.body)
			}
			if tt.status == http.StatusMethodNotAllowed && !strings.Contains(a.header.Get("Allow"), "GET") {
				t.Errorf("it allows %q", a.header.Get("Allow"))
			}
		})
	}
	ids := make(map[string]bool)
	for range 100 {
		ids[c.do("GET", "/v1/nothing", "").refusal(t).RequestID] = true
	}
	if len(ids) != 100 {
		t.Errorf("%d ids for 100 requests", len(ids))
	}
}

// TestInternalDetailStaysInTheLog breaks something that only the daemon knows of.
func TestInternalDetailStaysInTheLog(t *testing.T) {
	p := daemontest.Spawn(t)
	p.Shell("true")
	var dirs []string
	err := filepath.WalkDir(p.Config.Paths.StateDir, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && d.Name() == "workspace" {
			dirs = append(dirs, path)
		}
		return err
	})
	if err != nil || len(dirs) != 1 {
		t.Fatalf("%q, %v", dirs, err)
	}
	if err := os.Rename(dirs[0], dirs[0]+".away"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.Rename(dirs[0]+".away", dirs[0]); err != nil {
			t.Error(err)
		}
	}()
	a := callerAs(t, p.Daemon, 0).do("GET", "/v1/chats/default/files?path=/workspace", "")
	e := a.refusal(t)
	if a.status != 500 || e.Code != api.CodeInternal || !strings.Contains(e.Hint, e.RequestID) || strings.Contains(a.body, p.Dir) {
		t.Errorf("%d %s", a.status, a.body)
	}
	if log := p.Log(); !strings.Contains(log, e.RequestID) || !strings.Contains(log, dirs[0]) {
		t.Errorf("the log does not explain %s:\n%s", e.RequestID, log)
	}
}

// openTo lets other users than root reach a daemon's socket.
func openTo(t *testing.T, d *daemontest.Daemon) {
	t.Helper()
	if err := os.Chmod(d.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestAccounts(t *testing.T) {
	const alice, bob, chief = 65534, 65533, 65532
	d := daemontest.Start(t, func(c *config.Config) { c.Access.OperatorUIDs = []uint32{chief} })
	openTo(t, d)
	if err := os.Chmod(d.Socket(), 0o666); err != nil { // their groups may not exist here
		t.Fatal(err)
	}
	root, a, b, op := callerAs(t, d, 0), callerAs(t, d, alice), callerAs(t, d, bob), callerAs(t, d, chief)

	if got := a.do("POST", "/v1/chats", `{"id":"secret"}`, "Content-Type", "application/json"); got.status != 200 || !strings.Contains(got.body, `"account":"uid:65534"`) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	// The same name is another chat for another account, and nothing is seen.
	for who, c := range map[string]*caller{"another user": b, "root": root, "an operator": op} {
		if e := c.do("GET", "/v1/chats/secret", "").refusal(t); e.Code != api.CodeChatNotFound {
			t.Errorf("%s sees it: %+v", who, e)
		}
		if got := c.do("GET", "/v1/chats", ""); strings.Contains(got.body, "secret") {
			t.Errorf("%s sees it listed: %s", who, got.body)
		}
	}
	// Only operators may name another account.
	for who, c := range map[string]*caller{"root": root, "an operator": op} {
		if got := c.do("GET", "/v1/chats/secret", "", api.AccountHeader, "uid:65534"); got.status != 200 {
			t.Errorf("%s may not: %d %s", who, got.status, got.body)
		}
	}
	got := b.do("GET", "/v1/chats/secret", "", api.AccountHeader, "uid:65534")
	if e := got.refusal(t); got.status != 403 || e.Code != api.CodeForbidden || e.Hint == "" {
		t.Errorf("another user: %d %s", got.status, got.body)
	}
	if got := b.do("GET", "/v1/info", "", api.AccountHeader, "uid:65533"); got.status != 200 || !strings.Contains(got.body, `"operator":false`) {
		t.Errorf("naming one's own account: %d %s", got.status, got.body)
	}
	for _, bad := range []string{"a b", "../x", "-x", strings.Repeat("x", 65), "a/b", "ü"} {
		got := root.do("GET", "/v1/info", "", api.AccountHeader, bad)
		if e := got.refusal(t); got.status != 400 || e.Code != api.CodeInvalid {
			t.Errorf("account %q: %d %s", bad, got.status, got.body)
		}
	}
}
