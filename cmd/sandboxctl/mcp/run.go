package mcp

import (
	"context"
	"errors"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
)

// runArgs are what both ways to run something share.
type runArgs struct {
	Inputs  []string `json:"inputs,omitempty" jsonschema:"what it works on, placed below /inputs first: cells as \"#3\", https URLs, or names of files that put_file has placed there"`
	Timeout float64  `json:"timeout_seconds,omitempty" jsonschema:"end it after so many seconds; default 300, at most 600"`
	Label   string   `json:"label,omitempty" jsonschema:"groups the cells that come of it, such as the name of a scene"`
	Kind    string   `json:"kind,omitempty" jsonschema:"the pill of its cells, if not the one found out: video-edit, frame-extract, image-edit, audio-edit or file"`
}

type pythonArgs struct {
	Code string   `json:"code" jsonschema:"Python source; it runs as a fresh script in /workspace"`
	Args []string `json:"args,omitempty" jsonschema:"sys.argv[1:]"`
	runArgs
}

type shellArgs struct {
	Command string `json:"command" jsonschema:"a line for sh -c, run in /workspace"`
	runArgs
}

type commandArgs struct {
	Command string `json:"command" jsonschema:"the command's id, as run_python or run_shell gave it"`
}

func (a runArgs) request() api.NewCommand {
	return api.NewCommand{Inputs: a.Inputs, Timeout: a.Timeout, Label: a.Label, Kind: api.Pill(a.Kind)}
}

func (s *server) addRunTools() {
	tool(s, &sdk.Tool{
		Name: "run_python", Annotations: running("Run Python"),
		Description: "Run Python in the sandbox. Pillow, numpy, OpenCV, matplotlib, requests and mediakit are there. Save results to /outputs: each file becomes a cell. " +
			"Answers with the output's end, the cells and small pictures of them; work that takes longer goes on, and is followed with wait. Not for inventing pictures.",
	}, func(ctx context.Context, req *sdk.CallToolRequest, in pythonArgs) (*sdk.CallToolResult, error) {
		cmd := in.request()
		cmd.Python, cmd.Args = in.Code, in.Args
		return s.run(ctx, req, cmd)
	})
	tool(s, &sdk.Tool{
		Name: "run_shell", Annotations: running("Run a command"),
		Description: "Run a shell line in the sandbox: ffmpeg, magick, hyperframes, exiftool, sox. Write results to /outputs: each file becomes a cell. " +
			"Answers like run_python. Not for servers or anything that does not end.",
	}, func(ctx context.Context, req *sdk.CallToolRequest, in shellArgs) (*sdk.CallToolResult, error) {
		cmd := in.request()
		cmd.Shell = in.Command
		return s.run(ctx, req, cmd)
	})
	tool(s, &sdk.Tool{
		Name: "wait", Annotations: reading("Wait for a command"),
		Description: "Follow a command that was still running. Answers when it has ended, or that it goes on: then call wait again, in the next turn if the turn's budget is spent.",
	}, func(ctx context.Context, req *sdk.CallToolRequest, in commandArgs) (*sdk.CallToolResult, error) {
		return s.await(ctx, req, in.Command)
	})
	tool(s, &sdk.Tool{
		Name: "cancel", Annotations: running("Cancel a command"),
		Description: "End a running command with all its processes. What it had finished in /outputs stays.",
	}, func(ctx context.Context, req *sdk.CallToolRequest, in commandArgs) (*sdk.CallToolResult, error) {
		if err := s.cfg.Client.Kill(ctx, s.cfg.Chat, in.Command, 0); err != nil {
			return nil, err
		}
		return s.await(ctx, req, in.Command)
	})
	tool(s, &sdk.Tool{
		Name: "status", Annotations: reading("State of the chat"),
		Description: "What runs, how much of the turn's budget is left, whether the sandbox (and so the files below /workspace) still lives.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (*sdk.CallToolResult, error) {
		return s.status(ctx)
	})
}

// run starts a command and waits for it as long as the client is patient.
func (s *server) run(ctx context.Context, req *sdk.CallToolRequest, cmd api.NewCommand) (*sdk.CallToolResult, error) {
	started, err := s.cfg.Client.Start(ctx, s.cfg.Chat, cmd)
	if err != nil {
		return nil, err
	}
	return s.await(ctx, req, started.ID)
}

// await follows a command to its end, or until patience is over. A client that
// cancels its request cancels the command.
func (s *server) await(ctx context.Context, req *sdk.CallToolRequest, id string) (*sdk.CallToolResult, error) {
	patient, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	go s.events.notify(patient, req, id)
	var out, errs tail
	cmd, err := s.cfg.Client.Output(patient, s.cfg.Chat, id, true, func(chunk api.OutputChunk) error {
		if chunk.Stream == "stderr" {
			errs.add(chunk.Data)
		} else {
			out.add(chunk.Data)
		}
		return nil
	})
	switch {
	case ctx.Err() != nil:
		return nil, s.abandon(ctx, id)
	case errors.Is(err, context.DeadlineExceeded) || (err != nil && patient.Err() != nil):
		if cmd, err = s.cfg.Client.Command(ctx, s.cfg.Chat, id); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	}
	return s.result(ctx, cmd, out, errs)
}

// abandonTimeout bounds the cancelling of a command that nobody waits for.
const abandonTimeout = 15 * time.Second

// abandon cancels a command whose caller has cancelled its request.
func (s *server) abandon(ctx context.Context, id string) error {
	kill, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonTimeout)
	defer cancel()
	err := s.cfg.Client.Kill(kill, s.cfg.Chat, id, 0)
	var known *api.Error
	if errors.As(err, &known) && known.Code == api.CodeCommandEnded {
		err = nil
	}
	return errors.Join(ctx.Err(), err)
}
