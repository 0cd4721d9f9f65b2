// Package guest is the protocol between the host and sandbox-init, the guest's
// PID 1: its frames, and the host's end (Conn). The guest's end is
// runtime/guest/pid1.
//
// One Unix stream socket a sandbox carries it. The host listens, the guest
// dials, and dials again whenever the connection ends, so that a daemon may
// die and a later one goes on: the guest keeps every output byte until the
// host has acknowledged it, and every exit status until it is told to forget.
//
// The guest is hostile. The host believes nothing it says that could matter to
// another account; every frame is bounded, and a malformed one ends the
// connection. Start reading at the frame kinds below.
package guest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"mediasandbox/runtime/sandbox"
)

// Version is the protocol's version; both ends must speak the same.
const Version = 1

// Bounds of what one end takes from the other.
const (
	// MaxFrame is the largest frame's payload in bytes.
	MaxFrame = 2 << 20
	// MaxChunk is the largest piece of output or input in one frame, in bytes.
	MaxChunk = 64 << 10
	// Window is how many bytes of one stream the guest keeps unacknowledged.
	// When it is full the command's writes block.
	Window = 1 << 20
	// StdinWindow is how many bytes of input the host sends ahead.
	StdinWindow = 256 << 10
	// MaxID is the longest process id in bytes.
	MaxID = 64
	// MaxLeft is the largest number of processes left behind that is believed.
	MaxLeft = 1 << 20
	// MaxPaths is how many paths one answer to OpenFiles may name.
	MaxPaths = 10000
)

// Kind tells frames apart.
type Kind uint8

// Frames from the host to the guest.
const (
	KindStart Kind = iota + 1
	KindResume
	KindAck
	KindStdin
	KindSignal
	KindKill
	KindForget
	KindOpenFiles
	KindWarm
	KindResize
)

// Frames from the guest to the host.
const (
	KindHello Kind = iota + 64
	KindOutput
	KindExited
	KindHint
	KindFiles
)

// Hello is the guest's first frame on each connection.
type Hello struct {
	Version int `json:"version"`
	// Procs names the processes that the guest remembers.
	Procs []string `json:"procs,omitempty"`
}

// Start runs a command.
type Start struct {
	Proc  string       `json:"proc"`
	Argv  []string     `json:"argv"`
	Env   []string     `json:"env"`
	Dir   string       `json:"dir"`
	Stdin bool         `json:"stdin,omitempty"`
	TTY   *sandbox.TTY `json:"tty,omitempty"`
	// Warm lets Argv, which is python3 SCRIPT ARG…, start in the warm Python.
	Warm  bool           `json:"warm,omitempty"`
	Files []sandbox.File `json:"files,omitempty"`
	// GraceMillis is how long the streams stay open after the main process
	// ended, in milliseconds.
	GraceMillis int64 `json:"grace_ms"`
	// Keep lets processes that the main one leaves behind go on.
	Keep bool `json:"keep,omitempty"`
}

// Resize changes the size of a process's terminal.
type Resize struct {
	Proc string      `json:"proc"`
	TTY  sandbox.TTY `json:"tty"`
}

// Warm asks for a Python with its imports done, that later commands start in.
// It has the environment of every command.
type Warm struct {
	Env []string `json:"env"`
}

// Resume asks for a process's output from these offsets on, and for its end.
type Resume struct {
	Proc   string `json:"proc"`
	Stdout int64  `json:"stdout"`
	Stderr int64  `json:"stderr"`
}

// Signal sends a signal to the main process group.
type Signal struct {
	Proc   string `json:"proc"`
	Signal int    `json:"signal"`
}

// ProcRef names a process, for KindKill and KindForget.
type ProcRef struct {
	Proc string `json:"proc"`
}

// Exited says how a process ended. It follows all of its output.
type Exited struct {
	Proc   string `json:"proc"`
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"`
	// Unknown is set when the guest does not know the process.
	Unknown bool `json:"unknown,omitempty"`
	// Left is how many processes the main one left behind.
	Left int `json:"left,omitempty"`
	// Broken names outputs that those held open for writing when they were
	// killed; at most MaxPaths.
	Broken [][]byte `json:"broken,omitempty"`
	// PIDsRefused is set when processes were refused to it for the limit.
	PIDsRefused bool `json:"pids_refused,omitempty"`
	// Stdout and Stderr are the streams' lengths in bytes.
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// Hint says that the writer of a file below /outputs closed or renamed it.
// Names are bytes: a guest's file names need not be UTF-8.
type Hint struct {
	Path []byte `json:"path"`
}

// Closed is a line of the journal in which PID 1 records, on the sandbox's disk,
// that the writer of a file closed it in this state.
type Closed struct {
	Path []byte `json:"path"`
	Size int64  `json:"size"`
	// MTime is in nanoseconds since 1970.
	MTime int64 `json:"mtime"`
}

// OpenFiles asks which files below Dir are open for writing.
type OpenFiles struct {
	Seq uint64 `json:"seq"`
	Dir string `json:"dir"`
}

// Files answers OpenFiles.
type Files struct {
	Seq   uint64   `json:"seq"`
	Paths [][]byte `json:"paths,omitempty"`
	Err   string   `json:"err,omitempty"`
}

// Chunk is a piece of a stream: output at its offset, an acknowledgement (no
// data, everything below the offset is safe), or input (Stream is 0; no data
// is end of file). The guest acknowledges input with an output chunk of stream 0
// whose offset counts the bytes that the command's stdin has taken.
type Chunk struct {
	Proc   string
	Stream uint8
	Offset int64
	Data   []byte
}

// WriteJSON writes one control frame.
func WriteJSON(w io.Writer, kind Kind, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	return writeFrame(w, kind, body)
}

// WriteChunk writes one frame of a stream.
func WriteChunk(w io.Writer, kind Kind, c Chunk) error {
	body := make([]byte, 0, 10+len(c.Proc)+len(c.Data))
	body = append(body, byte(len(c.Proc)))
	body = append(body, c.Proc...)
	body = append(body, c.Stream)
	body = binary.BigEndian.AppendUint64(body, uint64(c.Offset))
	body = append(body, c.Data...)
	return writeFrame(w, kind, body)
}

func writeFrame(w io.Writer, kind Kind, body []byte) error {
	if len(body) > MaxFrame {
		return fmt.Errorf("frame of %d bytes is over the limit of %d", len(body), MaxFrame)
	}
	buf := make([]byte, 0, 5+len(body))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(body)))
	buf = append(buf, byte(kind))
	buf = append(buf, body...)
	_, err := w.Write(buf)
	return err
}

// ReadFrame reads one frame. The payload is the caller's to keep.
func ReadFrame(r io.Reader) (Kind, []byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[:4])
	if n > MaxFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes is over the limit of %d", n, MaxFrame)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, err
	}
	return Kind(head[4]), body, nil
}

// ParseChunk is the inverse of WriteChunk.
func ParseChunk(body []byte) (Chunk, error) {
	if len(body) < 1 {
		return Chunk{}, fmt.Errorf("chunk of %d bytes is too short", len(body))
	}
	n := int(body[0])
	if n > MaxID || len(body) < 1+n+9 {
		return Chunk{}, fmt.Errorf("chunk of %d bytes with an id of %d is malformed", len(body), n)
	}
	rest := body[1+n:]
	c := Chunk{
		Proc:   string(body[1 : 1+n]),
		Stream: rest[0],
		Offset: int64(binary.BigEndian.Uint64(rest[1:9])),
		Data:   rest[9:],
	}
	if c.Offset < 0 || len(c.Data) > MaxChunk {
		return Chunk{}, fmt.Errorf("chunk at %d with %d bytes is out of bounds", c.Offset, len(c.Data))
	}
	return c, nil
}

// ParseJSON decodes a control frame.
func ParseJSON[T any](body []byte) (T, error) {
	var v T
	if err := json.Unmarshal(body, &v); err != nil {
		return v, fmt.Errorf("decode frame: %w", err)
	}
	return v, nil
}
