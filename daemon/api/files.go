package api

import (
	"io/fs"
	"time"
)

// FileInfo is an entry of a sandbox's files.
type FileInfo struct {
	Path     string    `json:"path" doc:"Absolute, in the sandbox."`
	Size     int64     `json:"size"`
	Dir      bool      `json:"dir,omitempty"`
	Mode     string    `json:"mode" doc:"As ls shows it; what is neither file nor directory begins with its kind: L is a link, p a FIFO."`
	Modified time.Time `json:"modified"`
}

// MoveFile renames a file or a directory of a sandbox.
type MoveFile struct {
	From    string `json:"from" maxLength:"4096" doc:"Absolute, below /workspace, /inputs or /outputs."`
	To      string `json:"to" maxLength:"4096" doc:"Its new path. Directories above it are made."`
	Replace bool   `json:"replace,omitempty" doc:"Whether a file that is there may be replaced."`
}

// TreeTrailer names the HTTP trailer that follows a tree: a TreeEnd as JSON. A
// tree without it was cut off.
const TreeTrailer = "Media-Sandbox-Tree"

// TreeEnd follows a tree that was sent as a tar stream.
type TreeEnd struct {
	// Skipped counts what is neither file nor directory and was left out, Names
	// are the first of them.
	Skipped int      `json:"skipped"`
	Names   []string `json:"names,omitempty"`
	// Error is set when the tree is not whole.
	Error *Error `json:"error,omitempty"`
}

// Bounds of TreeEnd.Names, which go into a header: their number, and the bytes of
// each.
const (
	maxSkippedNames = 10
	maxSkippedName  = 200
)

// Skip counts an entry that is left out.
func (e *TreeEnd) Skip(name string, mode fs.FileMode) {
	if e.Skipped++; len(e.Names) < maxSkippedNames {
		e.Names = append(e.Names, name[:min(len(name), maxSkippedName)]+" ("+mode.Type().String()+")")
	}
}
