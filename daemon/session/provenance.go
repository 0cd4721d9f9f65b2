package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"

	"mediasandbox/daemon/api"
)

// Made is what decides a command's outputs beside its own text.
type Made struct {
	// Env is the whole environment.
	Env map[string]string `json:"env"`
	// Inputs are all files below /inputs when it started.
	Inputs map[string]Input `json:"inputs,omitempty"`
	// Stdin is the digest of the input that came with the request.
	Stdin   *api.Digest `json:"stdin,omitempty"`
	CPUs    float64     `json:"cpus"`
	Network string      `json:"network"`
	Product string      `json:"product"`
	// Earlier counts the commands before it in the same sandbox.
	Earlier int `json:"earlier,omitempty"`
}

// maxKeptStdin is the longest input that stays in a command's record after
// its end, in bytes, so that it can be given again.
const maxKeptStdin = 64 << 10

// made notes how a command is about to run in l.
func (e *Engine) made(l *live, rec CommandRecord) *Made {
	m := &Made{
		Env: e.environment(rec), CPUs: e.cfg.Limits.CPUs, Network: string(l.record.Spec.Network.Mode), Product: e.cfg.Version,
	}
	if len(rec.Stdin) > 0 {
		sum := sha256.Sum256(rec.Stdin)
		m.Stdin = &api.Digest{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(rec.Stdin))}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	m.Inputs, m.Earlier = maps.Clone(l.record.Inputs), l.record.Commands
	l.record.Commands++
	return m
}

// Provenance says how a cell was made.
func (e *Engine) Provenance(k ChatKey, ordinal int) (api.Provenance, error) {
	_, cmd, err := e.makerOf(k, ordinal)
	if err != nil {
		return api.Provenance{}, err
	}
	return e.provenance(cmd), nil
}

// OpenInput opens a file that a cell was made from, as its provenance names it.
func (e *Engine) OpenInput(ctx context.Context, k ChatKey, ordinal int, name string) (api.InputFile, io.ReadSeekCloser, error) {
	_, cmd, err := e.makerOf(k, ordinal)
	if err != nil {
		return api.InputFile{}, nil, err
	}
	in, ok := cmd.Made.Inputs[name]
	if !ok || in.tree() || in.SHA256 == "" {
		return api.InputFile{}, nil, api.Errorf(api.CodeFileNotFound, "cell #%d was made from no file %q", ordinal, name).
			WithHint("its provenance lists what it was made from")
	}
	content, err := e.findKept(ctx, in, k)
	if err == nil && content == nil {
		err = api.Errorf(api.CodeFileNotFound, "the input %s (SHA-256 %s) is not kept any more", name, in.SHA256)
	}
	return in.describe(name), content, err
}

// makerOf finds a cell and the command that made it.
func (e *Engine) makerOf(k ChatKey, ordinal int) (CellRecord, CommandRecord, error) {
	cell, err := e.cellRecord(k, ordinal)
	if err != nil {
		return cell, CommandRecord{}, err
	}
	var cmd CommandRecord
	err = e.cfg.Store.View(func(tx Tx) (err error) {
		cmd, err = tx.Command(k, cell.Command)
		return err
	})
	if errors.Is(err, ErrNotFound) || err == nil && cmd.Made == nil {
		err = api.Errorf(api.CodeCommandNotFound, "it is not known how cell #%d was made: no command was running", ordinal)
	}
	return cell, cmd, err
}

// inputFiles describes what a command named as inputs.
func inputFiles(rec CommandRecord) []api.InputFile {
	if rec.Made == nil || len(rec.Inputs) == 0 {
		return nil
	}
	var files []api.InputFile
	for _, name := range slices.Sorted(maps.Keys(rec.Made.Inputs)) {
		in := rec.Made.Inputs[name]
		named := func(input string) bool { return input == name || input == in.URL || input == "#"+strconv.Itoa(in.Cell) }
		if slices.ContainsFunc(rec.Inputs, named) {
			files = append(files, in.describe(name))
		}
	}
	return files
}

func (in Input) describe(name string) api.InputFile {
	return api.InputFile{
		Name: name, Digest: api.Digest{SHA256: in.SHA256, Size: in.Size}, ContentType: in.ContentType, Cell: in.Cell, URL: in.URL,
	}
}

func (e *Engine) provenance(cmd CommandRecord) api.Provenance {
	m := cmd.Made
	p := api.Provenance{
		Command: cmd.ID, Argv: cmd.Argv, Shell: cmd.Shell, Python: cmd.Python, Script: cmd.Script, Args: cmd.Args, Dir: cmd.Dir,
		Env: m.Env, Stdin: m.Stdin, Stream: cmd.Stream, TTY: cmd.TTY, Inputs: []api.InputFile{},
		Image: cmd.Image, CPUs: m.CPUs, Network: m.Network, Product: m.Product, Earlier: m.Earlier,
	}
	for _, name := range slices.Sorted(maps.Keys(m.Inputs)) {
		in := m.Inputs[name]
		file := in.describe(name)
		file.Kept = e.inputs.has(cmd.Key(), in.SHA256)
		p.Inputs = append(p.Inputs, file)
	}
	return p
}
