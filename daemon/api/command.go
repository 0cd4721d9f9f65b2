package api

import (
	"time"
)

// NewCommand asks for a command. Exactly one of Argv, Shell and Python says
// what to run.
type NewCommand struct {
	Argv    []string          `json:"argv,omitempty" doc:"Program and arguments."`
	Shell   string            `json:"shell,omitempty" doc:"A line for sh -c."`
	Python  string            `json:"python,omitempty" doc:"Python source."`
	Script  string            `json:"script,omitempty" doc:"The Python source's file name, as tracebacks show it."`
	Args    []string          `json:"args,omitempty" doc:"Arguments of the Python source (sys.argv[1:])."`
	Dir     string            `json:"dir,omitempty" doc:"Working directory in the sandbox; default /workspace."`
	Env     map[string]string `json:"env,omitempty" doc:"Added to the image's environment."`
	Timeout float64           `json:"timeout_seconds,omitempty" minimum:"0" doc:"Seconds, at most 600; default 300."`
	Turn    string            `json:"turn,omitempty" doc:"The turn it belongs to; opened if it is new. Absent: the open turn if it was opened by name, else a turn of its own."`
	Label   string            `json:"label,omitempty" maxLength:"100" doc:"Groups the cells that come of it."`
	Kind    Pill              `json:"kind,omitempty" enum:"video-edit,frame-extract,image-edit,audio-edit,file" doc:"The pill of its cells; found out when absent."`
	Stdin   []byte            `json:"stdin,omitempty" doc:"Input, base64."`
	Stream  bool              `json:"stream_stdin,omitempty" doc:"Input is sent to the command's stdin route instead."`
	TTY     *TTY              `json:"tty,omitempty" doc:"Run it on a terminal of this size. Its output comes as stdout; input is streamed."`
	Keep    bool              `json:"keep_background,omitempty" doc:"Processes that the main one leaves behind live on in the sandbox; what they print from 1 s after its end on is thrown away. Without it they are killed. Not with tty."`
	Publish []string          `json:"publish,omitempty" doc:"Patterns of names that look temporary (dot-files, *.part, *.tmp) and are published all the same, as '*.part'; in force for the sandbox from then on."`
	Inputs  []string          `json:"inputs,omitempty" doc:"Names below /inputs that it works on, #ordinal for cells to put there, and URLs to download there, in the sandbox and through its gate."`
}

// TTY is a terminal's size in characters.
type TTY struct {
	Rows uint16 `json:"rows" minimum:"1" maximum:"10000"`
	Cols uint16 `json:"cols" minimum:"1" maximum:"10000"`
}

// Command is one process tree run in a sandbox.
type Command struct {
	Type       string           `json:"type" enum:"command"`
	ID         string           `json:"id"`
	Chat       string           `json:"chat"`
	Argv       []string         `json:"argv,omitempty"`
	Shell      string           `json:"shell,omitempty"`
	Python     string           `json:"python,omitempty"`
	Script     string           `json:"script,omitempty"`
	Args       []string         `json:"args,omitempty"`
	Dir        string           `json:"dir"`
	TTY        bool             `json:"tty,omitempty"`
	Label      string           `json:"label,omitempty"`
	Kind       Pill             `json:"kind,omitempty"`
	Inputs     []string         `json:"inputs,omitempty"`
	Publish    []string         `json:"publish,omitempty"`
	InputFiles []InputFile      `json:"input_files,omitempty" doc:"What the inputs were, once it has started."`
	Turn       string           `json:"turn" doc:"In which it was started."`
	Left       float64          `json:"turn_left_seconds" doc:"Of the open turn's budget."`
	Continues  bool             `json:"continues,omitempty" doc:"The wait ended before the command did; wait for it in the next turn."`
	Progress   *CommandProgress `json:"progress,omitempty" doc:"While it runs, how far its media work is, if its programs tell."`
	Place      int              `json:"queue_place,omitempty" doc:"While queued behind the chat's other commands: 1 is next."`
	State      State            `json:"state"`
	ExitCode   *int             `json:"exit_code,omitempty" doc:"Of the main process; absent when a signal ended it or it did not end by itself."`
	Signal     int              `json:"signal,omitempty" doc:"That ended the main process."`
	Reason     string           `json:"reason,omitempty" doc:"Why it ended in this state, for people."`
	Keep       bool             `json:"keep_background,omitempty"`
	Background int              `json:"background_processes,omitempty" doc:"How many processes the main one left behind: killed, or living on with keep_background."`
	Timeout    float64          `json:"timeout_seconds"`
	CreatedAt  time.Time        `json:"created_at"`
	StartedAt  *time.Time       `json:"started_at,omitempty"`
	EndedAt    *time.Time       `json:"ended_at,omitempty"`
	Stdout     Output           `json:"stdout"`
	Stderr     Output           `json:"stderr"`
	// Fresh is set when the command began in a new sandbox, although the chat
	// had one before: its files are gone.
	FilesLost bool   `json:"files_lost,omitempty" doc:"The chat's earlier sandbox, with its files, was gone when this command started."`
	Image     string `json:"image,omitempty" doc:"Digest of the image it ran on."`
	Cells     []Cell `json:"cells,omitempty" doc:"Cells that came of it."`
	// Skipped names outputs that did not become cells, with the reason.
	Skipped []Skipped `json:"skipped,omitempty" doc:"Outputs that did not become cells."`
}

// Output describes one stream of a command.
type Output struct {
	Bytes     int64 `json:"bytes" doc:"Written by the command."`
	Truncated bool  `json:"truncated,omitempty" doc:"Whether some of it was dropped."`
	Dropped   int64 `json:"dropped_bytes,omitempty" doc:"Bytes missing in the middle."`
}

// Skipped is an output that did not become a cell.
type Skipped struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}
