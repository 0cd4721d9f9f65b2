// Package sandbox is the contract between the session engine and whatever
// runs sandboxes: what a sandbox is made from (Spec), how commands are run in
// it (Handle, Process), and what gives it its network (Network).
//
// It holds no implementation. runtime/runsc drives gVisor; runtime/gate makes
// the network. Start reading at Runtime.
package sandbox

import (
	"context"
	"errors"
	"io"
	"time"
)

// Errors that callers tell apart with errors.Is.
var (
	// ErrGone says that the sandbox ended, or never existed.
	ErrGone = errors.New("sandbox is gone")
	// ErrNoProcess says that the sandbox knows no process of that id.
	ErrNoProcess = errors.New("no such process in the sandbox")
	// ErrNoNetwork says that the sandbox was made without a network.
	ErrNoNetwork = errors.New("the sandbox was made without a network")
)

// Spec says what a sandbox is made from. It is written to the daemon's state
// as JSON, so that a later daemon can find the sandbox again.
type Spec struct {
	// ID names the sandbox on the host: 1 to 32 characters of [a-z0-9-].
	ID string `json:"id"`
	// Image is the path of the EROFS image that the root file system boots from.
	Image string `json:"image"`
	// Disk is a host directory of the sandbox's own. Its sub-directories
	// workspace, inputs, outputs and skills appear in the guest under /.
	Disk string `json:"disk"`
	// Overlay is a host directory for the writable layer over the image.
	Overlay string `json:"overlay"`
	// Limits bound what the sandbox may use.
	Limits Limits `json:"limits"`
	// WarmEnv, when not empty, is the environment of a Python that is kept
	// ready in the sandbox with its imports done.
	WarmEnv []string `json:"warm_env,omitempty"`
	// Network says what the sandbox may reach.
	Network NetworkPolicy `json:"network"`
}

// JournalDir is the sub-directory of Spec.Disk in which the guest records the
// files below /outputs that their writers closed; guest.ClosedFiles reads it.
const JournalDir = "journal"

// Limits bound one sandbox. A zero field means no limit of that kind.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	// PIDs bounds the processes and threads of all commands together.
	PIDs int64 `json:"pids"`
	// OverlayBytes bounds the writable layer over the image.
	OverlayBytes int64 `json:"overlay_bytes"`
}

// Runtime makes, finds and removes sandboxes.
type Runtime interface {
	// Start boots a sandbox and returns once it accepts commands. When it
	// returns an error nothing of the sandbox is left on the host.
	Start(ctx context.Context, spec Spec) (Handle, error)
	// Adopt takes over a sandbox that an earlier daemon started. It returns
	// ErrGone when the sandbox no longer runs; what is left of it stays until
	// Remove.
	Adopt(ctx context.Context, spec Spec) (Handle, error)
	// Remove ends the sandbox and removes everything of it but Spec.Disk:
	// processes, mounts, namespaces, cgroups, directories. It may be called
	// in any state, also half-made, and more than once.
	Remove(ctx context.Context, id string) error
	// List names every sandbox of which anything is left on the host.
	List(ctx context.Context) ([]string, error)
}

// Handle is a running sandbox.
type Handle interface {
	// ID is Spec.ID.
	ID() string
	// Start runs a command. The id names the process for Reattach.
	Start(ctx context.Context, id string, cmd Command) (Process, error)
	// Reattach returns a process that Start began, also from an earlier
	// daemon. Output continues at the offsets in from, so that a reader
	// neither loses nor doubles a byte. It returns ErrNoProcess when the
	// sandbox does not know the id.
	Reattach(ctx context.Context, id string, from Offsets, sink Sink) (Process, error)
	// OpenForWriting names the files below the guest directory dir that a
	// guest process holds open for writing or has mapped shared and writable.
	OpenForWriting(ctx context.Context, dir string) ([]string, error)
	// Hints delivers the paths below /outputs whose writer closed them or
	// renamed them into place. It is closed when the sandbox ends. A hint
	// comes from the guest: it may be missing, late, or a lie.
	Hints() <-chan string
	// Done is closed when the sandbox has ended; Exit then says how.
	Done() <-chan struct{}
	Exit() Exit
	// Usage tells what it uses of the host; ok is false where the host does not
	// account for it.
	Usage() (u Usage, ok bool)
	// Detach lets go of the sandbox without ending it.
	Detach() error
}

// Usage is what a sandbox uses of the host, with its kernel and all its
// processes.
type Usage struct {
	// Memory is in bytes, the page cache that it filled included.
	Memory int64
	// CPU is the time it has had, of all cores.
	CPU time.Duration
	// Processes counts the host's processes and threads.
	Processes int64
}

// Command says what to run in a sandbox.
type Command struct {
	Argv []string
	// Env is the whole environment, as KEY=value.
	Env []string
	// Dir is the working directory in the guest.
	Dir string
	// Files are written in the guest before the command starts.
	Files []File
	// TTY, when not nil, runs the command on a terminal of its own: input and
	// both output streams are the terminal's, and output comes as Stdout.
	TTY *TTY
	// Warm lets a command "python3 SCRIPT ARG…" start in the sandbox's warm
	// Python, if it has one: its imports are done, and otherwise it is like a
	// fresh one.
	Warm bool
	// Stdin, when not nil, is read until EOF and sent to the command.
	Stdin io.Reader
	// KillGrace is how long after the main process ended the output streams
	// stay open for what its children still write.
	KillGrace time.Duration
	// KeepBackground lets processes that the main one leaves behind live on in
	// the sandbox; what they print after KillGrace is thrown away. Otherwise
	// they are killed.
	KeepBackground bool
	// Sink receives the output.
	Sink Sink
}

// File is a small file that a command brings along.
type File struct {
	Path string `json:"path"` // absolute, in the guest
	Data []byte `json:"data"`
}

// TTY is a terminal's size in characters.
type TTY struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Stream tells stdout from stderr.
type Stream uint8

// The output streams of a command.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// Offsets counts the bytes of each stream that are safe with the caller.
type Offsets struct{ Stdout, Stderr int64 }

// Sink takes the output of a command. Calls for one stream come in order,
// never two at a time. A Write that returned nil must have made the bytes safe
// against the death of the calling process: only then does the guest forget
// them.
type Sink interface {
	Write(stream Stream, offset int64, data []byte) error
}

// Process is one command in a sandbox: the process and all its descendants.
type Process interface {
	// Signal sends sig to the command's main process group.
	Signal(sig int) error
	// Resize changes the size of the command's terminal.
	Resize(TTY) error
	// Kill ends the main process and every descendant, whatever session or
	// parent it has.
	Kill() error
	// Done is closed once the command has ended and its output is complete.
	Done() <-chan struct{}
	// Status says how it ended; valid after Done.
	Status() Status
	// Forget tells the sandbox that nobody will ask for this process again.
	Forget() error
}

// Status says how a command ended.
type Status struct {
	// Code is the exit code; -1 when a signal ended it.
	Code int `json:"code"`
	// Signal is the signal that ended it, or 0.
	Signal int `json:"signal,omitempty"`
	// Left is how many processes the main one left behind: killed, or living
	// on with Command.KeepBackground. The guest's word.
	Left int `json:"left,omitempty"`
	// Broken names outputs, by their paths in the guest, that those held open
	// for writing when they were killed. The guest's word.
	Broken []string `json:"broken,omitempty"`
	// PIDsRefused is set when, while it ran, the sandbox had as many processes
	// as Limits.PIDs and was refused another.
	PIDsRefused bool `json:"pids_refused,omitempty"`
	// Err says why the command could not be started or followed; ErrGone
	// when the sandbox ended under it.
	Err error `json:"-"`
}

// Exit says how a sandbox ended.
type Exit struct {
	// OOM is set when the host killed it for exceeding Limits.MemoryBytes.
	OOM bool
	// Reason is one line for people.
	Reason string
}
