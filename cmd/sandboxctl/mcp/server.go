// Package mcp lets a model use a chat of the daemon's through the Model Context
// Protocol: tools to run commands, move files, look at cells and prove that they
// can be made again, and cells and skills as resources. One server serves one
// chat, over stdin and stdout: `sandboxctl mcp`.
//
// Start reading at Serve; tools are added in run.go, files.go, cells.go and
// skills.go.
package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
	"mediasandbox/internal/version"
)

// Config says what is served.
type Config struct {
	Client *client.Client
	// Chat is made if there is none of that name.
	Chat string
	// Dir is the directory of this host that tools may read files from and write
	// files to; nothing outside it is reached, through links either.
	Dir string
	// Patience is how long a tool waits for a command before it answers with the
	// command still running: shorter than the client's own.
	Patience time.Duration
	Log      *slog.Logger
}

// server is one conversation.
type server struct {
	cfg    Config
	mcp    *sdk.Server
	dir    *os.Root
	events *follower
}

// instructions tell the model what the tools are for, and when not to use them.
const instructions = `media-sandbox does exact, repeatable media work: trimming, resizing, cropping, converting, extracting frames, ` +
	`captions, compositing, sound. Commands run in an isolated Linux sandbox with Python 3 (Pillow, numpy, OpenCV, matplotlib), ffmpeg, ` +
	`ImageMagick and HyperFrames. Put work files in /workspace; files left in /outputs become numbered cells (#1, #2, …) that the person sees at once. ` +
	`Inputs stand below /inputs: upload them with put_file, or name cells as "#3" in the inputs of a run. ` +
	`Before a video or photo job read the skill for it (skills, read_skill) and use its mediakit module: five lines instead of fifty. ` +
	`Look at what you made (look) before you say that it is done. ` +
	`Do not use the sandbox to invent pictures or footage (use a generative model), for text-only answers, or for long-running services: ` +
	`a command may take ten minutes at most, the work of one turn 210 seconds, and the sandbox with its files is removed five minutes after its last command; cells stay.`

// Serve answers one client over the transport until it leaves or ctx ends.
func Serve(ctx context.Context, cfg Config, transport sdk.Transport) error {
	s, err := newServer(ctx, cfg)
	if err != nil {
		return err
	}
	defer s.dir.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.events.run(ctx)
	err = s.mcp.Run(ctx, transport)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func newServer(ctx context.Context, cfg Config) (*server, error) {
	if err := openChat(ctx, cfg); err != nil {
		return nil, err
	}
	dir, err := os.OpenRoot(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("open the directory for files: %w", err)
	}
	s := &server{cfg: cfg, dir: dir}
	s.events = newFollower(s)
	s.mcp = sdk.NewServer(&sdk.Implementation{Name: "media-sandbox", Title: "media-sandbox", Version: version.String()}, &sdk.ServerOptions{
		Instructions: instructions, Logger: cfg.Log,
		Capabilities: &sdk.ServerCapabilities{},
	})
	s.addRunTools()
	s.addFileTools()
	s.addCellTools()
	s.addSkillTools()
	return s, nil
}

// openChat makes the chat unless it is there.
func openChat(ctx context.Context, cfg Config) error {
	_, err := cfg.Client.Chat(ctx, cfg.Chat)
	var known *api.Error
	if !errors.As(err, &known) || known.Code != api.CodeChatNotFound {
		return err
	}
	_, err = cfg.Client.CreateChat(ctx, api.NewChat{ID: cfg.Chat, Title: "MCP"})
	return err
}

// tool adds a tool whose handler returns what the model reads.
func tool[In any](s *server, t *sdk.Tool, handle func(context.Context, *sdk.CallToolRequest, In) (*sdk.CallToolResult, error)) {
	sdk.AddTool(s.mcp, t, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		res, err := handle(ctx, req, in)
		return res, nil, explain(err)
	})
}

// explain makes an error of the daemon's say what to do about it.
func explain(err error) error {
	var known *api.Error
	if !errors.As(err, &known) {
		return err
	}
	text := fmt.Sprintf("%s (%s)", known.Message, known.Code)
	if known.Hint != "" {
		text += "\nhint: " + known.Hint
	}
	if known.Retryable {
		text += "\nIt may work later."
	}
	return errors.New(text)
}

// said is a result of one text.
func said(format string, args ...any) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

// Hints of tools. Only what a sandbox may reach over the network is of the open
// world.
func reading(title string) *sdk.ToolAnnotations {
	no := false
	return &sdk.ToolAnnotations{Title: title, ReadOnlyHint: true, OpenWorldHint: &no}
}

func adding(title string) *sdk.ToolAnnotations {
	no := false
	return &sdk.ToolAnnotations{Title: title, DestructiveHint: &no, OpenWorldHint: &no}
}

func running(title string) *sdk.ToolAnnotations {
	no := false
	return &sdk.ToolAnnotations{Title: title, DestructiveHint: &no}
}

// local turns a path that the model names into one below the directory.
func (s *server) local(path string) (string, error) {
	if filepath.IsAbs(path) {
		rel, err := filepath.Rel(s.cfg.Dir, path)
		if err != nil {
			return "", fmt.Errorf("file %s is not below %s", path, s.cfg.Dir)
		}
		path = rel
	}
	if !filepath.IsLocal(path) {
		return "", fmt.Errorf("file %s is not below %s, the only directory of this host that is open to this server (sandboxctl mcp --dir)", path, s.cfg.Dir)
	}
	return path, nil
}
