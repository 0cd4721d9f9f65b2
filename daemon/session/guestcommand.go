package session

import (
	"bytes"
	"maps"
	"path"
	"slices"
	"strings"

	"mediasandbox/runtime/sandbox"
)

// guestCommand turns a record into what the sandbox is asked to run.
func (e *Engine) guestCommand(rec CommandRecord, sink sandbox.Sink) sandbox.Command {
	env := e.environment(rec)
	if rec.Made != nil {
		env = rec.Made.Env
	}
	const scripts = "/run/commands/"
	cmd := sandbox.Command{Argv: rec.Argv, Env: environ(env), Dir: rec.Dir, KillGrace: killGrace, KeepBackground: rec.Keep, Sink: sink}
	switch {
	case rec.Shell != "":
		cmd.Argv = []string{"sh", "-c", rec.Shell}
	case rec.Python != "":
		file := sandbox.File{Path: scripts + rec.ID + "/" + scriptName(rec.Script), Data: []byte(rec.Python)}
		cmd.Files = []sandbox.File{file}
		cmd.Argv = append([]string{"python3", file.Path}, rec.Args...)
		cmd.Warm = e.cfg.WarmPython && warmable(rec.Env)
	}
	if rec.Size != nil {
		cmd.TTY = &sandbox.TTY{Rows: rec.Size.Rows, Cols: rec.Size.Cols}
		cmd.Env = append(cmd.Env, "TERM=xterm-256color")
	}
	if len(rec.Stdin) > 0 {
		cmd.Stdin = bytes.NewReader(rec.Stdin)
	}
	return cmd
}

// environment is the image's with what the command adds.
func (e *Engine) environment(rec CommandRecord) map[string]string {
	env := make(map[string]string, len(e.cfg.Env)+len(rec.Env))
	maps.Copy(env, e.cfg.Env)
	maps.Copy(env, rec.Env)
	return env
}

// fixedAtStart are the prefixes of variables that a Python reads only when it
// starts, or when a library is loaded.
var fixedAtStart = []string{"PYTHON", "LD_", "GLIBC_", "MALLOC_", "MPL", "OMP_", "OPENBLAS_", "LC_", "LANG"}

// warmable tells whether a command's own variables leave the warm Python as
// good as a fresh one.
func warmable(env map[string]string) bool {
	for k := range env {
		for _, prefix := range fixedAtStart {
			if strings.HasPrefix(k, prefix) {
				return false
			}
		}
	}
	return true
}

// environ lists an environment as KEY=value, sorted.
func environ(env map[string]string) []string {
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

// scriptName is what tracebacks call a Python source.
func scriptName(given string) string {
	name := path.Base(given)
	if given == "" || name == "." || name == "/" || name == "-" {
		return "command.py"
	}
	return name
}
