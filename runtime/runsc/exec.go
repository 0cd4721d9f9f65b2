package runsc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// runsc runs the binary; its error carries what runsc said.
//
// The sandbox inherits runsc's standard streams, and the guest's PID 1 has them
// as files that guest root can write to: they must be /dev/null, and what runsc
// says is read from its log.
func (r *Runtime) runsc(ctx context.Context, id string, args []string) error {
	logFile := filepath.Join(r.dir(id), "runsc.log")
	cmd := exec.CommandContext(ctx, r.cfg.Binary, append([]string{"--log", logFile}, args...)...)
	// A sandbox must not end with the daemon, nor get its terminal's signals.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	said, readErr := lastError(logFile)
	return errors.Join(fmt.Errorf("runsc %s: %w: %s", verb(args), err, said), readErr)
}

func verb(args []string) string {
	for i, a := range args {
		if a == "run" || a == "delete" {
			return args[i]
		}
	}
	return ""
}

// lastError is what runsc last wrote to its log as an error: a line of JSON
// among others.
func lastError(logFile string) (string, error) {
	text, err := os.ReadFile(logFile)
	if errors.Is(err, os.ErrNotExist) {
		return "it said nothing", nil
	}
	if err != nil {
		return "", fmt.Errorf("read what runsc said: %w", err)
	}
	said := "it said nothing"
	for line := range bytes.Lines(text) {
		var entry struct {
			Msg   string `json:"msg"`
			Level string `json:"level"`
		}
		if json.Unmarshal(line, &entry) == nil && entry.Level == "error" {
			said = entry.Msg
		}
	}
	return said, nil
}
