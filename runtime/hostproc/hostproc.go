// Package hostproc names a process of the host so that the name still means
// the same process after the daemon restarted: a pid together with its start
// time. It ends and awaits processes through pidfds, never by a bare pid.
package hostproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Ref names one process for as long as the host is up.
type Ref struct {
	PID int `json:"pid"`
	// Start is the start time in clock ticks since boot (proc(5), field 22).
	Start uint64 `json:"start"`
}

// ErrGone says that the process has ended.
var ErrGone = errors.New("process has ended")

// Of returns the name of the process that pid means now.
func Of(pid int) (Ref, error) {
	start, err := startTime(pid)
	if err != nil {
		return Ref{}, err
	}
	return Ref{PID: pid, Start: start}, nil
}

func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return 0, ErrGone
	}
	if err != nil {
		return 0, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	// The name in parentheses may hold anything; fields count from its end.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const field22 = 22 - 3
	if len(fields) <= field22 {
		return 0, fmt.Errorf("read the state of process %d: %d fields", pid, len(fields))
	}
	if fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0, ErrGone
	}
	return strconv.ParseUint(string(fields[field22]), 10, 64)
}

// Open returns a pidfd of the process as a pollable file.
func (r Ref) Open() (*os.File, error) {
	fd, err := unix.PidfdOpen(r.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", r.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// The pid may have been given to another process before the open.
	if start, err := startTime(r.PID); err != nil || start != r.Start {
		f.Close()
		if err == nil {
			err = ErrGone
		}
		return nil, err
	}
	return f, nil
}

// Alive tells whether the process still runs.
func (r Ref) Alive() bool {
	start, err := startTime(r.PID)
	return err == nil && start == r.Start
}

// Wait returns when the process behind a pidfd has ended.
func Wait(pidfd *os.File) error {
	conn, err := pidfd.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for a process: %w", err)
	}
	var waitErr error
	err = conn.Read(func(fd uintptr) bool {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			waitErr = err
			return true
		}
		return n > 0
	})
	return errors.Join(err, waitErr)
}

// Kill sends SIGKILL and waits until the process has ended.
func (r Ref) Kill(ctx context.Context) error {
	f, err := r.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", r.PID, err)
	}
	for r.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("kill process %d: %w", r.PID, ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}
