// Package api holds what crosses the daemon's socket: wire types, error codes
// and paths. It is a leaf: server, client and CLI all import it, and it
// imports nothing of ours. The OpenAPI document is produced from these types,
// so their `doc` tags are the API's reference.
package api

import (
	"regexp"
	"time"
)

// DefaultSocket is where the daemon listens when nothing else is said.
const DefaultSocket = "/run/media-sandbox/api.sock"

// SocketEnv names the environment variable that overrides DefaultSocket.
const SocketEnv = "MEDIA_SANDBOX_SOCKET"

// AccountHeader names the account a request acts for. Only operators may name
// another than their own.
const AccountHeader = "Media-Sandbox-Account"

// DefaultChat is the chat of a caller that names none.
const DefaultChat = "default"

// ValidID is what a chat's id looks like.
var ValidID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Defaults and bounds of the product.
const (
	DefaultTimeout = 300 * time.Second
	MaxTimeout     = 600 * time.Second
	TurnBudget     = 210 * time.Second
	// MaxRunning is how many commands of a chat run at a time.
	MaxRunning = 8
	// MaxSource is the longest Python source or shell line in bytes.
	MaxSource = 1 << 20
	// MaxPublish is how many patterns of names a command may ask to publish.
	MaxPublish = 16
	// MaxArgs bounds argv and env together, in bytes.
	MaxArgs = 128 << 10
)

// State is where a command is in its life.
type State string

// The states. A command ends in exactly one of those after Running.
const (
	StateQueued    State = "queued"
	StateRunning   State = "running"
	StateSucceeded State = "succeeded"
	StateFailed    State = "failed"
	StateTimedOut  State = "timed_out"
	StateCanceled  State = "canceled"
	StateOOMKilled State = "oom_killed"
	StateLost      State = "lost"
)

// Ended tells whether the state is a last one.
func (s State) Ended() bool { return s != StateQueued && s != StateRunning }

// Pill is the kind of work a cell shows.
type Pill string

// The pills.
const (
	PillVideoEdit    Pill = "video-edit"
	PillFrameExtract Pill = "frame-extract"
	PillImageEdit    Pill = "image-edit"
	PillAudioEdit    Pill = "audio-edit"
	PillFile         Pill = "file"
)

// Pills lists them all, for help texts and checks.
func Pills() []Pill {
	return []Pill{PillVideoEdit, PillFrameExtract, PillImageEdit, PillAudioEdit, PillFile}
}

// Chat is one conversation of an account.
type Chat struct {
	ID        string    `json:"id" doc:"Names the chat within its account."`
	Account   string    `json:"account" doc:"Owner of the chat."`
	Title     string    `json:"title,omitempty" doc:"For people."`
	Network   string    `json:"network" enum:"public,allowlist,none" doc:"What the chat's sandboxes may reach; the chat's network route tells the rest."`
	CreatedAt time.Time `json:"created_at"`
	Sandbox   *Sandbox  `json:"sandbox,omitempty" doc:"The live sandbox, if there is one."`
	Cells     int       `json:"cells" doc:"How many ordinals were given."`
	Turn      *Turn     `json:"turn,omitempty" doc:"The open turn."`
	Retention Retention `json:"retention" doc:"How long cells are kept that are published now."`
	Skills    []string  `json:"skills" doc:"The active skills; the chat's sandboxes have them under /skills."`
	LastEvent uint64    `json:"last_event" doc:"Id of its latest event: following after it begins now."`
}

// Sandbox is what a chat shows of its live sandbox.
type Sandbox struct {
	ID        string    `json:"id"`
	CreatedAt time.Time `json:"created_at"`
	// IdleSince is when the last command ended; nil while one runs.
	IdleSince *time.Time `json:"idle_since,omitempty" doc:"When the last command ended; absent while one runs."`
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it is removed with its files if nothing more runs."`
}

// SandboxUsage is a live sandbox with what it uses of the host.
type SandboxUsage struct {
	Sandbox
	Account     string  `json:"account"`
	Chat        string  `json:"chat"`
	Running     int     `json:"running" doc:"Commands."`
	Turn        *Turn   `json:"turn,omitempty" doc:"The chat's open turn."`
	Accounted   bool    `json:"accounted" doc:"Whether the host accounts for memory, CPU and processes."`
	Memory      int64   `json:"memory_bytes,omitempty" doc:"With the page cache that it filled."`
	MemoryLimit int64   `json:"memory_limit_bytes,omitempty"`
	CPU         float64 `json:"cpu_seconds,omitempty" doc:"Of all cores, since it was booted."`
	Processes   int64   `json:"processes,omitempty" doc:"Of the host's, threads too."`
	Disk        int64   `json:"disk_bytes" doc:"Of the host's disk that its files take."`
	Sent        int64   `json:"sent_bytes" doc:"Over the network, since it was booted."`
	Received    int64   `json:"received_bytes"`
	Flows       int     `json:"open_flows"`
}

// Turn is one exchange of a chat. Its clock runs while at least one command of
// the chat does.
type Turn struct {
	ID       string     `json:"id"`
	Implicit bool       `json:"implicit,omitempty" doc:"Opened for a caller that named none."`
	OpenedAt time.Time  `json:"opened_at"`
	ClosedAt *time.Time `json:"closed_at,omitempty" doc:"Absent while it is open."`
	Budget   float64    `json:"budget_seconds" doc:"Of work."`
	Used     float64    `json:"used_seconds"`
	Left     float64    `json:"left_seconds"`
}

// NewTurn opens a turn.
type NewTurn struct {
	ID string `json:"id,omitempty" doc:"1 to 64 of A-Z a-z 0-9 . _ -; chosen by the daemon when absent."`
}

// NewChat asks for a chat.
type NewChat struct {
	ID        string    `json:"id,omitempty" doc:"1 to 64 of A-Z a-z 0-9 . _ -; chosen by the daemon when absent."`
	Title     string    `json:"title,omitempty" maxLength:"200"`
	Network   string    `json:"network,omitempty" enum:"public,allowlist,none" doc:"Default public."`
	Retention Retention `json:"retention,omitempty" doc:"How long its cells are kept, as in Settings; that of the account when absent."`
}

// Cell is one finished output file.
type Cell struct {
	Ordinal   int       `json:"ordinal" doc:"Given once in a chat, never again."`
	Revision  int       `json:"revision" doc:"1, and one more each time the file changed after it was published."`
	Pill      Pill      `json:"pill"`
	State     CellState `json:"state"`
	Chat      string    `json:"chat"`
	Command   string    `json:"command,omitempty"`
	Label     string    `json:"label,omitempty"`
	File      File      `json:"file"`
	Previews  []string  `json:"previews,omitempty" doc:"The small pictures there are of it: thumb, strip (of a video), wave (of a sound)."`
	Note      string    `json:"note,omitempty" doc:"What a person should know, such as a name that does not fit the content."`
	CreatedAt time.Time `json:"created_at"`
}

// CellState tells whether the file is in the store.
type CellState string

// The cell states.
const (
	CellPending   CellState = "pending"
	CellPublished CellState = "published"
	// CellLost is a cell whose file could not be kept.
	CellLost CellState = "lost"
)

// File is the file object of a cell.
type File struct {
	URL         string  `json:"url,omitempty"`
	Path        string  `json:"path" doc:"Below /outputs."`
	Name        string  `json:"file_name"`
	Size        int64   `json:"file_size" doc:"Bytes."`
	ContentType string  `json:"content_type" doc:"From the content, not the name."`
	SHA256      string  `json:"sha256"`
	Width       int     `json:"width,omitempty" doc:"Pixels."`
	Height      int     `json:"height,omitempty" doc:"Pixels."`
	Duration    float64 `json:"duration,omitempty" doc:"Seconds."`
	FPS         float64 `json:"fps,omitempty"`
	VideoCodec  string  `json:"video_codec,omitempty"`
	AudioCodec  string  `json:"audio_codec,omitempty"`
	PixelFormat string  `json:"pixel_format,omitempty"`
	HasAlpha    bool    `json:"has_alpha,omitempty"`
	// ExpiresAt is absent when it is kept for ever.
	ExpiresAt *time.Time `json:"expires_at,omitempty" doc:"When it is removed; absent when it is kept for ever."`
}

// Event is something that happened in a chat.
type Event struct {
	ID       uint64           `json:"id" doc:"Rises by one within a chat; give it as Last-Event-ID to go on after it."`
	Type     EventType        `json:"type"`
	Time     time.Time        `json:"time"`
	Command  *Command         `json:"command,omitempty"`
	Cell     *Cell            `json:"cell,omitempty"`
	Message  string           `json:"message,omitempty"`
	Refusal  *NetworkRefusal  `json:"refusal,omitempty" doc:"Of network.refused."`
	Progress *Progress        `json:"progress,omitempty" doc:"Of input.progress."`
	Work     *CommandProgress `json:"work,omitempty" doc:"Of command.progress."`
}

// Progress says how far the download of an input is.
type Progress struct {
	Command string `json:"command"`
	Input   string `json:"input" doc:"Name below /inputs."`
	Bytes   int64  `json:"bytes"`
	Total   int64  `json:"total,omitempty" doc:"Absent when the server does not say."`
}

// ProgressBy names who told how far a command is.
type ProgressBy string

// Who tells how far a command is.
const (
	ProgressByFFmpeg      ProgressBy = "ffmpeg"
	ProgressByHyperFrames ProgressBy = "hyperframes"
	// ProgressByScript is a line "@progress {…}" of the command's own.
	ProgressByScript ProgressBy = "script"
)

// CommandProgress says how far a command's media work is, as its own programs
// tell it.
type CommandProgress struct {
	Command string     `json:"command"`
	By      ProgressBy `json:"by" enum:"ffmpeg,hyperframes,script"`
	Percent *float64   `json:"percent,omitempty" doc:"0 to 100; absent when the length of the result is not known."`
	Frame   int64      `json:"frame,omitempty" doc:"Frames made so far."`
	FPS     float64    `json:"fps,omitempty" doc:"Frames made a second."`
	Speed   float64    `json:"speed,omitempty" doc:"Seconds of the result made a second."`
	Time    float64    `json:"time,omitempty" doc:"Seconds of the result made so far."`
	ETA     *float64   `json:"eta,omitempty" doc:"Seconds that remain, estimated."`
	Stage   string     `json:"stage,omitempty" doc:"What is being done, in the program's words."`
}

// AccountEvent is an event of any of an account's chats.
type AccountEvent struct {
	Seq  uint64 `json:"seq" doc:"Rises within the account; give it as Last-Event-ID to go on after it."`
	Chat string `json:"chat"`
	Event
}

// EventType names what happened.
type EventType string

// The event types.
const (
	EventCommandState  EventType = "command.state"
	EventCellPending   EventType = "cell.pending"
	EventCellPublished EventType = "cell.published"
	EventCellLost      EventType = "cell.lost"
	EventCellExpired   EventType = "cell.expired"
	EventCellPreview   EventType = "cell.preview"
	// EventCommandProgress tells how far a command's media work is, every few
	// seconds.
	EventCommandProgress EventType = "command.progress"
	// EventInputProgress tells how far a download is, every few seconds.
	EventInputProgress  EventType = "input.progress"
	EventTurnOpened     EventType = "turn.opened"
	EventSandboxStarted EventType = "sandbox.started"
	EventSandboxEnded   EventType = "sandbox.ended"
	// EventNetworkChanged tells of new settings; EventNetworkRefused of a
	// place that was refused, once a sandbox; EventNetworkRestarted of a gate
	// that had died and was started again.
	EventNetworkChanged   EventType = "network.changed"
	EventNetworkRefused   EventType = "network.refused"
	EventNetworkRestarted EventType = "network.restarted"
)

// OutputChunk is a piece of a command's output. A chunk whose offset is higher
// than the end of the one before leaves out what the bounded log dropped.
type OutputChunk struct {
	Stream string `json:"stream" enum:"stdout,stderr"`
	Offset int64  `json:"offset" doc:"Bytes of the stream before this chunk."`
	Data   []byte `json:"data" doc:"base64"`
}

// Info describes the daemon.
type Info struct {
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	Account   string    `json:"account" doc:"That the caller acts for."`
	Operator  bool      `json:"operator"`
	StateDir  string    `json:"state_dir"`
	Image     Image     `json:"image"`
	Store     string    `json:"store" doc:"local or s3"`
	Limits    Limits    `json:"limits"`
	Usage
}

// Usage says how busy the daemon is, of all accounts.
type Usage struct {
	Sandboxes  int `json:"sandboxes" doc:"Live, of all accounts."`
	Running    int `json:"running_commands" doc:"Of all accounts."`
	Waiting    int `json:"waiting_commands" doc:"Of all accounts."`
	UploadWait int `json:"uploads_waiting"`
}

// Image names the image that sandboxes boot from.
type Image struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// Limits are those in force.
type Limits struct {
	DefaultTimeout   float64 `json:"default_timeout_seconds"`
	MaxTimeout       float64 `json:"max_timeout_seconds"`
	TurnBudget       float64 `json:"turn_budget_seconds" doc:"Work in one turn."`
	IdleLife         float64 `json:"idle_life_seconds"`
	MaxRunning       int     `json:"max_running" doc:"Commands of a chat that run at a time; more are queued."`
	MemoryBytes      int64   `json:"memory_bytes"`
	CPUs             float64 `json:"cpus"`
	PIDs             int64   `json:"pids"`
	DiskBytes        int64   `json:"disk_bytes" doc:"Of /workspace, /inputs and /outputs together."`
	OverlayBytes     int64   `json:"overlay_bytes" doc:"Of what is written elsewhere."`
	Sandboxes        int     `json:"sandboxes" doc:"Live at a time on this host; more wait."`
	AccountSandboxes int     `json:"account_sandboxes" doc:"Live at a time of one account; more wait."`
	AccountRunning   int     `json:"account_running" doc:"Commands of one account that run at a time; more wait."`
	Waiting          int     `json:"waiting" doc:"Commands of this host that may wait; more are refused with host_full."`
	DiskReserve      int64   `json:"disk_reserve_bytes" doc:"Of the host's disk that is kept free: below it, work is refused with host_full."`
	MemoryReserve    int64   `json:"memory_reserve_bytes" doc:"Of the host's memory that stays available: below it, what needs another sandbox is refused with host_full."`
	OutputBytes      int64   `json:"output_bytes" doc:"Kept of each stream."`
	Enforced         bool    `json:"cgroups_enforced" doc:"Whether the host lets the daemon bound memory, CPU and processes."`
	Unenforced       string  `json:"cgroups_reason,omitempty" doc:"Why not."`
	DiskEnforced     bool    `json:"disk_enforced" doc:"Whether the host lets the daemon bound disks."`
	DiskUnenforced   string  `json:"disk_reason,omitempty" doc:"Why not."`
}
