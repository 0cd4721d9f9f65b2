package api

// Provenance says how a cell's file was made, as far as that decides its bytes.
type Provenance struct {
	Command string            `json:"command" doc:"Id of the command."`
	Argv    []string          `json:"argv,omitempty"`
	Shell   string            `json:"shell,omitempty"`
	Python  string            `json:"python,omitempty"`
	Script  string            `json:"script,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Dir     string            `json:"dir"`
	Env     map[string]string `json:"env" doc:"The whole environment: locale, time zone, seeds, what the caller added."`
	Stdin   *Digest           `json:"stdin,omitempty" doc:"Input that came with the request."`
	Stream  bool              `json:"stream_stdin,omitempty" doc:"Input was streamed, and is not kept."`
	TTY     bool              `json:"tty,omitempty"`
	Inputs  []InputFile       `json:"inputs" doc:"All files below /inputs when it started."`
	Image   string            `json:"image" doc:"SHA-256 of the image."`
	CPUs    float64           `json:"cpus"`
	Network string            `json:"network"`
	Product string            `json:"product" doc:"The daemon's version."`
	Earlier int               `json:"earlier_commands" doc:"Commands that ran in the same sandbox before, whose files it may have used."`
}

// Digest names bytes.
type Digest struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size" doc:"Bytes."`
}

// InputFile is a file below /inputs.
type InputFile struct {
	Name string `json:"name" doc:"Below /inputs."`
	Digest
	ContentType string `json:"content_type" doc:"From the content."`
	Cell        int    `json:"cell,omitempty" doc:"Ordinal of the cell it was copied from."`
	URL         string `json:"url,omitempty" doc:"Where it was downloaded from."`
	Kept        bool   `json:"kept,omitempty" doc:"Whether its bytes are still there for a replay."`
}

// Verdict is what a replay found.
type Verdict string

// The verdicts.
const (
	// VerdictIdentical is a file of the same bytes.
	VerdictIdentical Verdict = "identical"
	// VerdictDiffers is a file of other bytes.
	VerdictDiffers Verdict = "differs"
	// VerdictMissing is a command that did not make the file again.
	VerdictMissing Verdict = "missing"
)

// Replay is what came of running a cell's command again in a fresh sandbox
// without a network.
type Replay struct {
	Cell     int     `json:"cell"`
	Revision int     `json:"revision"`
	Verdict  Verdict `json:"verdict"`
	Reason   string  `json:"reason,omitempty" doc:"What to know of the verdict, for people."`
	State    State   `json:"state" doc:"How the command ended this time."`
	ExitCode *int    `json:"exit_code,omitempty"`
	Original Digest  `json:"original"`
	Again    *Digest `json:"again,omitempty" doc:"The file made this time."`
	// FirstByte is the offset of the first byte that differs.
	FirstByte  *int64   `json:"first_byte,omitempty" doc:"Offset of the first byte that differs; the shorter length when one begins the other."`
	FirstFrame *int     `json:"first_frame,omitempty" doc:"The first picture that differs, from 1; absent when all pictures are the same."`
	Frames     int      `json:"frames,omitempty" doc:"Pictures compared."`
	PSNR       *float64 `json:"psnr,omitempty" doc:"Of the first picture that differs, in dB."`
	Image      string   `json:"image" doc:"SHA-256 of the image it ran on this time."`
	SameImage  bool     `json:"same_image"`
	Seconds    float64  `json:"seconds"`
}
