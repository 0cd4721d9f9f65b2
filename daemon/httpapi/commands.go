package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/outlog"
	"mediasandbox/daemon/session"
)

type CommandPath struct {
	ChatPath
	Command string `path:"command" maxLength:"64" doc:"The command's id."`
}

// maxWait bounds one wait, so that an answer comes within a client's patience.
const maxWait = 600 * time.Second

func (s *server) routeCommands() {
	e := s.cfg.Engine
	register(s, op("start-command", http.MethodPost, "/v1/chats/{chat}/commands", "Run a command"),
		func(ctx context.Context, in *struct {
			ChatPath
			Key  string `header:"Idempotency-Key" maxLength:"255" doc:"A request that repeats it is answered with the command of the first."`
			Body api.NewCommand
		}) (api.Command, error) {
			return e.StartCommand(ctx, in.key(ctx), in.Body, in.Key)
		})
	register(s, op("list-commands", http.MethodGet, "/v1/chats/{chat}/commands", "List a chat's commands, oldest first"),
		func(ctx context.Context, in *ChatPath) ([]api.Command, error) {
			return e.Commands(in.key(ctx))
		})
	register(s, op("get-command", http.MethodGet, "/v1/chats/{chat}/commands/{command}", "Show a command, once it has ended if asked to wait"),
		func(ctx context.Context, in *struct {
			CommandPath
			Wait float64 `query:"wait" minimum:"0" maximum:"600" doc:"Seconds to wait for its end."`
			Turn string  `query:"turn" maxLength:"64" doc:"The turn in which the caller waits."`
		}) (api.Command, error) {
			if in.Wait == 0 {
				return e.Command(in.key(ctx), in.Command)
			}
			ctx, cancel := context.WithTimeout(ctx, min(maxWait, time.Duration(in.Wait*float64(time.Second))))
			defer cancel()
			return e.Wait(ctx, in.key(ctx), in.Command, in.Turn)
		})
	registerEmpty(s, op("kill-command", http.MethodPost, "/v1/chats/{chat}/commands/{command}/kill", "Signal a command, or end it as canceled"),
		func(ctx context.Context, in *struct {
			CommandPath
			Signal int `query:"signal" minimum:"0" maximum:"64" doc:"Signal number for the main process; without it the command ends with all its processes."`
		}) error {
			return e.Kill(in.key(ctx), in.Command, in.Signal)
		})
	registerEmpty(s, op("resize-command", http.MethodPost, "/v1/chats/{chat}/commands/{command}/resize", "Change the size of a command's terminal"),
		func(ctx context.Context, in *struct {
			CommandPath
			Body api.TTY
		}) error {
			return e.Resize(in.key(ctx), in.Command, in.Body)
		})
	command := []*huma.Param{{Name: "command", In: "path", Required: true, Schema: &huma.Schema{Type: huma.TypeString}}}
	s.routeRaw(op("feed-command", http.MethodPost, "/v1/chats/{chat}/commands/{command}/stdin",
		"Send a command its input as it comes; the end of the body is the end of the input"), command, noAnswer, s.feed)
	s.routeOutput()
}

func (s *server) feed(w http.ResponseWriter, r *http.Request) {
	if err := s.cfg.Engine.Feed(rawKey(r), r.PathValue("command"), r.Body); err != nil {
		s.fail(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

type outputRequest struct {
	CommandPath
	Stdout int64  `query:"stdout" minimum:"0" doc:"Offset to read stdout from, in bytes."`
	Stderr int64  `query:"stderr" minimum:"0" doc:"Offset to read stderr from, in bytes."`
	Follow bool   `query:"follow" doc:"Go on until the command ends, or the turn's budget does."`
	Turn   string `query:"turn" maxLength:"64" doc:"The turn in which the caller waits."`
}

func (s *server) routeOutput() {
	o := op("command-output", http.MethodGet, "/v1/chats/{chat}/commands/{command}/output",
		"Stream a command's output: events 'output' (OutputChunk) and, last, 'command' (Command)")
	s.stream(&o, api.OutputChunk{}, api.Command{})
	huma.Register(s.api, o, func(ctx context.Context, in *outputRequest) (*huma.StreamResponse, error) {
		key := in.key(ctx)
		if _, err := s.cfg.Engine.Command(key, in.Command); err != nil {
			return nil, s.wire(ctx, err)
		}
		return &huma.StreamResponse{Body: func(hc huma.Context) {
			w := newSSE(hc)
			if err := s.copyOutput(ctx, w, in, key); err != nil && !isCanceled(err) {
				w.fail(s.wire(ctx, err))
			}
		}}, nil
	})
}

// copyOutput sends both streams as they come, then the command's record. A
// follower whose turn is over is told so with the record as it is.
func (s *server) copyOutput(ctx context.Context, w *sse, in *outputRequest, key session.ChatKey) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	streams, stop := context.WithCancel(ctx)
	defer stop()
	type ending struct {
		command api.Command
		err     error
	}
	ended := make(chan ending, 1)
	go func() {
		var e ending
		if in.Follow {
			e.command, e.err = s.cfg.Engine.Wait(ctx, key, in.Command, in.Turn)
		} else {
			e.command, e.err = s.cfg.Engine.Command(key, in.Command)
		}
		if e.err != nil || e.command.Continues {
			stop()
		}
		ended <- e
	}()
	var both sync.WaitGroup
	results := make([]error, 2)
	for i, stream := range []api.OutputChunk{{Stream: "stdout", Offset: in.Stdout}, {Stream: "stderr", Offset: in.Stderr}} {
		both.Go(func() {
			results[i] = s.copyStream(streams, w, in, key, stream)
			if results[i] != nil && streams.Err() == nil {
				cancel()
			}
		})
	}
	both.Wait()
	e := <-ended
	if err := errors.Join(results...); err != nil && !e.command.Continues {
		return err
	}
	if e.err != nil {
		return e.err
	}
	return w.send("command", "", e.command)
}

// copyStream sends one stream from an offset on.
func (s *server) copyStream(ctx context.Context, w *sse, in *outputRequest, key session.ChatKey, next api.OutputChunk) error {
	for {
		log, closeLog, err := s.cfg.Engine.Output(key, in.Command, next.Stream)
		if err != nil {
			return err
		}
		err = errors.Join(copyLog(ctx, w, log, in.Follow, &next), closeLog())
		if !errors.Is(err, os.ErrClosed) {
			return err
		}
		// The command ended under us and the engine let go of its log: the
		// rest is read from the file.
	}
}

// copyLog sends what a log holds from next's offset on, and moves that along.
func copyLog(ctx context.Context, w *sse, log *outlog.Log, follow bool, next *api.OutputChunk) error {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := log.ReadAt(ctx, buf, next.Offset, follow)
		if errors.Is(err, io.EOF) || (err == nil && n == 0) {
			return nil
		}
		if err != nil {
			return err
		}
		next.Offset, next.Data = from, buf[:n]
		if err := w.send("output", "", next); err != nil {
			return err
		}
		next.Offset += int64(n)
	}
}
