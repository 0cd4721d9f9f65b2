package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"mediasandbox/daemon/api"
)

// event is one server-sent event.
type event struct {
	name string
	data []byte
}

// maxEvent bounds one event's line in bytes: an output chunk of 64 KiB in
// base64, or a command's record with its source.
const maxEvent = 8 << 20

// readEvents calls handle with each event until the stream ends.
func readEvents(r io.Reader, handle func(event) error) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 128<<10), maxEvent)
	var ev event
	for sc.Scan() {
		line := sc.Bytes()
		name, isName := bytes.CutPrefix(line, []byte("event: "))
		data, isData := bytes.CutPrefix(line, []byte("data: "))
		switch {
		case isName:
			ev.name = string(name)
		case isData:
			ev.data = bytes.Clone(data)
		case len(line) == 0 && ev.name != "":
			if err := handle(ev); err != nil {
				return err
			}
			ev = event{}
		}
	}
	if err := sc.Err(); err != nil {
		return cut(fmt.Errorf("read events: %w", err))
	}
	return nil
}

// fault decodes the event with which a stream says that it failed.
func (ev event) fault() error {
	var body api.ErrorBody
	if err := json.Unmarshal(ev.data, &body); err != nil || body.Error == nil {
		return fmt.Errorf("the daemon ended the stream: %s", ev.data)
	}
	return body.Error
}

// reconnectFor is how long a daemon that went away is waited for: it may be
// restarting, and commands go on without it.
const reconnectFor = 30 * time.Second

// errStreamCut is a stream that ended before its last event.
var errStreamCut = errors.New("the stream was cut off")

// cut marks an error of a connection that a daemon's end breaks.
func cut(err error) error {
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, broken) {
			return fmt.Errorf("%w: %w", errStreamCut, err)
		}
	}
	return err
}

// retry runs f again while the daemon is away; f calls alive when it is there.
// One that never was there is not waited for: a connection that it cut off
// shows that it was.
func retry[T any](ctx context.Context, f func(alive func()) (T, error)) (T, error) {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.MaxInterval = 50*time.Millisecond, time.Second
	var lost time.Time
	met := false
	alive := func() {
		met, lost = true, time.Time{}
		b.Reset()
	}
	op := func() (T, error) {
		v, err := f(alive)
		met = met || errors.Is(err, errStreamCut)
		var unreachable *Unreachable
		switch {
		case err == nil:
			return v, nil
		case ctx.Err() != nil, !met, !errors.As(err, &unreachable) && !errors.Is(err, errStreamCut):
			return v, backoff.Permanent(err)
		case lost.IsZero():
			lost = time.Now()
		case time.Since(lost) > reconnectFor:
			return v, backoff.Permanent(err)
		}
		return v, err
	}
	return backoff.Retry(ctx, op, backoff.WithBackOff(b), backoff.WithMaxElapsedTime(0))
}

// Output calls handle with a command's output from its beginning, and returns
// the command's record at its end, or as it is now when follow is false. When
// the daemon goes away it is waited for, and the output goes on at the byte
// after the last one.
func (c *Client) Output(ctx context.Context, chat, id string, follow bool, handle func(api.OutputChunk) error) (api.Command, error) {
	return c.OutputIn(ctx, chat, id, "", follow, handle)
}

// OutputIn is Output within a turn: when the turn is over, the command comes
// back marked as continuing.
func (c *Client) OutputIn(ctx context.Context, chat, id, turn string, follow bool, handle func(api.OutputChunk) error) (api.Command, error) {
	offsets := map[string]int64{}
	return retry(ctx, func(alive func()) (api.Command, error) {
		return c.output(ctx, chat, id, turn, follow, offsets, alive, handle)
	})
}

// output reads one connection's worth of a command's output.
func (c *Client) output(ctx context.Context, chat, id, turn string, follow bool, offsets map[string]int64, alive func(), handle func(api.OutputChunk) error) (api.Command, error) {
	var cmd api.Command
	res, err := c.do(ctx, request{
		method: http.MethodGet, path: []string{"chats", chat, "commands", id, "output"},
		query: url.Values{
			"stdout": {strconv.FormatInt(offsets["stdout"], 10)},
			"stderr": {strconv.FormatInt(offsets["stderr"], 10)},
			"follow": {strconv.FormatBool(follow)},
			"turn":   {turn},
		},
	})
	if err != nil {
		return cmd, cut(err)
	}
	defer res.Body.Close()
	alive()
	done := false
	err = readEvents(res.Body, func(ev event) error {
		switch ev.name {
		case "output":
			var chunk api.OutputChunk
			if err := json.Unmarshal(ev.data, &chunk); err != nil {
				return fmt.Errorf("decode output: %w", err)
			}
			if err := handle(chunk); err != nil {
				return err
			}
			offsets[chunk.Stream] = chunk.Offset + int64(len(chunk.Data))
		case "command":
			done = true
			return json.Unmarshal(ev.data, &cmd)
		case "error":
			return ev.fault()
		}
		return nil
	})
	if err == nil && !done {
		return cmd, errStreamCut
	}
	return cmd, err
}

// Events calls handle with each event of a chat after the given id, until ctx
// ends or handle returns an error. It reconnects without missing one.
func (c *Client) Events(ctx context.Context, chat string, after uint64, handle func(api.Event) error) error {
	return follow(ctx, c, []string{"chats", chat, "events"}, after, func(e api.Event) (uint64, error) { return e.ID, handle(e) })
}

// AccountEvents is Events for all of the account's chats, after the given
// number in the account's own sequence.
func (c *Client) AccountEvents(ctx context.Context, after uint64, handle func(api.AccountEvent) error) error {
	return follow(ctx, c, []string{"events"}, after, func(e api.AccountEvent) (uint64, error) { return e.Seq, handle(e) })
}

// follow reads a stream of events; handle also returns an event's number.
func follow[E any](ctx context.Context, c *Client, path []string, after uint64, handle func(E) (uint64, error)) error {
	_, err := retry(ctx, func(alive func()) (struct{}, error) {
		res, err := c.do(ctx, request{
			method: http.MethodGet, path: path, header: http.Header{"Last-Event-Id": {strconv.FormatUint(after, 10)}},
		})
		if err != nil {
			return struct{}{}, cut(err)
		}
		defer res.Body.Close()
		alive()
		err = readEvents(res.Body, func(ev event) error {
			if ev.name == "error" {
				return ev.fault()
			}
			var e E
			if err := json.Unmarshal(ev.data, &e); err != nil {
				return fmt.Errorf("decode event: %w", err)
			}
			n, err := handle(e)
			after = n
			return err
		})
		if err == nil {
			err = errStreamCut
		}
		return struct{}{}, err
	})
	return err
}
