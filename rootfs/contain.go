package rootfs

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

//go:embed enter.sh
var enterScript string

// command is a program run for a build. It gets namespaces of its own, so that
// its mounts and all its descendants go when it does, however it ends.
type command struct {
	argv []string
	env  []string
	// offline gives it a network namespace with nothing in it.
	offline bool
	// stdout, when not nil, receives the output; else log does.
	stdout io.Writer
	log    io.Writer
}

// run runs the command. When ctx ends it is killed with all its descendants,
// and run returns only when they are gone.
func (c command) run(ctx context.Context) error {
	// A parent-death signal is tied to the thread that starts the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = c.env
	cmd.Stdout, cmd.Stderr = c.log, c.log
	if c.stdout != nil {
		cmd.Stdout = c.stdout
	}
	cmd.WaitDelay = 10 * time.Second
	flags := uintptr(syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC)
	if c.offline {
		flags |= syscall.CLONE_NEWNET
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: flags,
		// Unshared rather than cloned: Go then also makes every mount private.
		Unshareflags: syscall.CLONE_NEWNS,
		Pdeathsig:    syscall.SIGKILL,
		// Ctrl-C on a terminal is the builder's to handle.
		Setpgid: true,
	}
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("run %s: %w", c.argv[0], cause)
	}
	if err != nil {
		return fmt.Errorf("run %s: %w", c.argv[0], err)
	}
	return nil
}

// insideMode says how a script runs in the tree.
type insideMode string

const (
	// insidePrepare lets the script change the tree.
	insidePrepare insideMode = "prepare"
	// insideCheck makes the tree read-only.
	insideCheck insideMode = "check"
)

// inside is a tree in which scripts are run, with the recipe's environment.
type inside struct {
	tree   string
	recipe *Recipe
	log    io.Writer
}

// run runs a script in the tree, without a network.
func (i inside) run(ctx context.Context, mode insideMode, script string, stdout io.Writer) error {
	argv := []string{"/bin/sh", "-c", enterScript, "enter.sh", i.tree, string(mode), script}
	if mode == insideCheck {
		argv = append(argv, i.writable()...)
	}
	return command{argv: argv, env: i.recipe.Environ(), offline: true, stdout: stdout, log: i.log}.run(ctx)
}

// writable lists the directories of the recipe, which commands in a sandbox may
// write to.
func (i inside) writable() []string {
	var paths []string
	for _, d := range i.recipe.Directories {
		paths = append(paths, d.Path)
	}
	return paths
}

// firstLine returns the first line that a script prints.
func (i inside) firstLine(ctx context.Context, script string) (string, error) {
	var out bytes.Buffer
	if err := i.run(ctx, insideCheck, script, &out); err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("script %q printed nothing", script)
	}
	return line, nil
}

// check runs the recipe's checks in the tree.
func (i inside) check(ctx context.Context) error {
	for _, c := range i.recipe.Checks {
		if err := i.run(ctx, insideCheck, c.Run, nil); err != nil {
			return fmt.Errorf("check that %s: %w", c.Name, err)
		}
	}
	return nil
}
