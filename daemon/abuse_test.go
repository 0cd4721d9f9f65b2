package daemon_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// maxAbuse bounds all attempts together.
const maxAbuse = 10 * time.Minute

//go:embed testdata/abuse.py
var abuseSource string

// abuse is a line of what the guest reports: what it tried and what came of it.
type abuse struct {
	ID       string `json:"id"`
	Attempt  string `json:"attempt"`
	Expected string `json:"expected"`
	Outcome  string `json:"outcome"`
	Held     bool   `json:"held"`
}

// hostState is what a guest that broke out might have changed.
func hostState(t *testing.T) map[string]string {
	t.Helper()
	state := make(map[string]string)
	for _, path := range []string{
		"/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/kernel/randomize_va_space",
		"/proc/sys/kernel/panic_on_oops", "/proc/sys/vm/overcommit_memory", "/proc/sys/net/ipv4/ip_forward", "/etc/resolv.conf", "/proc/swaps",
	} {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		state[path] = string(text)
	}
	return state
}

// TestAbuse lets a guest's root try what docs/abuse.md lists. Nothing of the host
// changes, the sandbox goes on, and so does another chat's.
func TestAbuse(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) {
		c.Limits.TurnBudget, c.Limits.PIDs = config.Duration(maxAbuse), 512
	})
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: "other"}); err != nil {
		t.Fatal(err)
	}
	before := hostState(t)
	// A case may bring its sandbox down with it; no honest script needs so long.
	cmd := d.Finish(api.NewCommand{Python: abuseSource, Timeout: maxAbuse.Seconds()})
	out, errs := d.Printed(cmd)
	if cmd.State != api.StateSucceeded {
		t.Fatalf("%s (%s): %s\n%s", cmd.State, cmd.Reason, errs, out)
	}
	var cases []abuse
	for line := range strings.Lines(out) {
		var a abuse
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if !a.Held {
			t.Errorf("%s %s: it came to %.200s", a.ID, a.Attempt, a.Outcome)
		}
		cases = append(cases, a)
	}
	if len(cases) < 120 {
		t.Errorf("only %d cases were tried", len(cases))
	}
	for what, was := range before {
		if is := hostState(t)[what]; is != was {
			t.Errorf("%s was %q and is %q", what, was, is)
		}
	}
	if st, err := os.Stat(filepath.Join(d.Config.Paths.StateDir, "state.db")); err != nil || st.Mode().Perm()&0o077 != 0 {
		t.Errorf("the state is %v, %v", st, err)
	}
	if next := d.Shell("echo still here"); next.State != api.StateSucceeded || next.FilesLost {
		t.Errorf("the chat's next command: %s (%s), files lost: %v", next.State, next.Reason, next.FilesLost)
	}
	other, err := d.Client.Start(t.Context(), "other", api.NewCommand{Argv: []string{"true"}})
	if err == nil {
		other, err = d.Client.Wait(t.Context(), "other", other.ID)
	}
	if err != nil || other.State != api.StateSucceeded {
		t.Errorf("another chat's command: %s (%s), %v", other.State, other.Reason, err)
	}
	checkAbusePage(t, cases)
}

// checkAbusePage holds docs/abuse.md to the cases; with MEDIA_SANDBOX_UPDATE set
// it writes the page.
func checkAbusePage(t *testing.T, cases []abuse) {
	t.Helper()
	var page strings.Builder
	page.WriteString(`# What a hostile guest tries

Written by ` + "`MEDIA_SANDBOX_UPDATE=1 go test ./daemon -run '^TestAbuse$'`" + ` from daemon/testdata/abuse.py; do not edit. Each is tried by root in a real
sandbox, in ` + "`TestAbuse`" + `. What must come of it is a pattern: an error's name, or what the attempt returned where it may work
because it reaches nothing but the sandbox itself. After all of them the host is as it was, and the sandbox goes on.
Attempts that end a sandbox, and those against accounts, files, outputs and the network, have tests of their own: see
[security.md](security.md).

| id | attempt | must come to |
|---|---|---|
`)
	for _, a := range cases {
		expected := strings.ReplaceAll(a.Expected, strings.Join(refusedNames, "|"), "*refused*")
		fmt.Fprintf(&page, "| %s | %s | %s |\n", a.ID, strings.ReplaceAll(a.Attempt, "|", `\|`), strings.ReplaceAll(expected, "|", " or "))
	}
	fmt.Fprintf(&page, "\n*refused* is one of %s.\n", strings.Join(refusedNames, ", "))
	path := filepath.Join(testenv.Root(t), "docs", "abuse.md")
	if os.Getenv("MEDIA_SANDBOX_UPDATE") != "" {
		if err := os.WriteFile(path, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != page.String() {
		t.Errorf("docs/abuse.md is not what the cases are: write it anew (%v)", err)
	}
}

// refusedNames are what REFUSED stands for in abuse.py.
var refusedNames = strings.Split("EPERM|EACCES|ENOSYS|EINVAL|EROFS|ENOENT|ENODEV|ENXIO|EOPNOTSUPP|ENOTSUP|EBADF|EFAULT|ESRCH|ENOTTY|EIO|ENOTDIR|EBUSY", "|")
