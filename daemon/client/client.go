// Package client is the Go client of the daemon's socket: it owns dialling,
// decoding and typed errors. Every error of the daemon is an *api.Error; that
// nobody listens is an *Unreachable. Start reading at New.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"syscall"

	"mediasandbox/daemon/api"
)

// Client speaks with one daemon for one account. It is safe for concurrent use.
type Client struct {
	socket  string
	account string
	http    *http.Client
}

// New returns a client of the socket; an empty name stands for
// $MEDIA_SANDBOX_SOCKET, or the default. An empty account is the caller's own.
func New(socket, account string) *Client {
	if socket == "" {
		socket = os.Getenv(api.SocketEnv)
	}
	if socket == "" {
		socket = api.DefaultSocket
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, account: account, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// Socket is the path that the client dials.
func (c *Client) Socket() string { return c.socket }

// Unreachable says that no daemon answered.
type Unreachable struct {
	Socket string
	Err    error
}

// Error implements error.
func (e *Unreachable) Error() string {
	switch {
	case errors.Is(e.Err, fs.ErrPermission):
		return fmt.Sprintf("may not connect to %s: is your user in the group that owns the socket?", e.Socket)
	case errors.Is(e.Err, fs.ErrNotExist), errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Sprintf("no daemon answers: is sandboxd running? tried %s", e.Socket)
	}
	return fmt.Sprintf("no daemon answers on %s: %v", e.Socket, e.Err)
}

// Unwrap returns the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// request describes one call.
type request struct {
	method string
	path   []string
	query  url.Values
	body   io.Reader
	header http.Header
}

func (c *Client) do(ctx context.Context, r request) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "media-sandbox", RawQuery: r.query.Encode()}
	u.Path = "/v1"
	for _, p := range r.path {
		if p == "" || p == "." || p == ".." {
			return nil, api.Errorf(api.CodeInvalid, "%q is not a name", p)
		}
		u.RawPath = u.EscapedPath() + "/" + url.PathEscape(p)
		u.Path += "/" + p
	}
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), r.body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if c.account != "" {
		req.Header.Set(api.AccountHeader, c.account)
	}
	res, err := c.http.Do(req)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "dial" {
			return nil, &Unreachable{c.socket, op.Err}
		}
		return nil, fmt.Errorf("%s %s: %w", r.method, u.Path, err)
	}
	if res.StatusCode >= 400 {
		return nil, errors.Join(readError(res), res.Body.Close())
	}
	return res, nil
}

// maxErrorBody bounds what is read of an error's answer.
const maxErrorBody = 64 << 10

func readError(res *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(res.Body, maxErrorBody))
	if err != nil {
		return fmt.Errorf("read the daemon's answer: %w", err)
	}
	var body api.ErrorBody
	if json.Unmarshal(text, &body) != nil || body.Error == nil {
		return fmt.Errorf("the daemon answered %s: %s", res.Status, bytes.TrimSpace(text))
	}
	return body.Error
}

// call makes a request with a JSON body and decodes a JSON answer.
func call[T any](ctx context.Context, c *Client, r request, in any) (T, error) {
	var out T
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return out, fmt.Errorf("encode request: %w", err)
		}
		r.body = bytes.NewReader(body)
		if r.header == nil {
			r.header = make(http.Header)
		}
		r.header.Set("Content-Type", "application/json")
	}
	res, err := c.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNoContent {
		return out, nil
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		return out, fmt.Errorf("decode the daemon's answer: %w", err)
	}
	return out, nil
}

// Info describes the daemon.
func (c *Client) Info(ctx context.Context) (api.Info, error) {
	return call[api.Info](ctx, c, request{method: http.MethodGet, path: []string{"info"}}, nil)
}

// Sandboxes lists the account's live sandboxes with what they use; with all,
// which is for operators, those of all accounts.
func (c *Client) Sandboxes(ctx context.Context, all bool) ([]api.SandboxUsage, error) {
	return call[[]api.SandboxUsage](ctx, c, request{
		method: http.MethodGet, path: []string{"sandboxes"}, query: url.Values{"all": {strconv.FormatBool(all)}},
	}, nil)
}

// CreateChat makes a chat.
func (c *Client) CreateChat(ctx context.Context, chat api.NewChat) (api.Chat, error) {
	return call[api.Chat](ctx, c, request{method: http.MethodPost, path: []string{"chats"}}, chat)
}

// Chats lists the account's chats.
func (c *Client) Chats(ctx context.Context) ([]api.Chat, error) {
	return call[[]api.Chat](ctx, c, request{method: http.MethodGet, path: []string{"chats"}}, nil)
}

// Chat shows one chat.
func (c *Client) Chat(ctx context.Context, chat string) (api.Chat, error) {
	return call[api.Chat](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat}}, nil)
}

// ChangeChat changes what req gives of a chat.
func (c *Client) ChangeChat(ctx context.Context, chat string, req api.ChangeChat) (api.Chat, error) {
	return call[api.Chat](ctx, c, request{method: http.MethodPatch, path: []string{"chats", chat}}, req)
}

// Settings shows the account's settings.
func (c *Client) Settings(ctx context.Context) (api.Settings, error) {
	return call[api.Settings](ctx, c, request{method: http.MethodGet, path: []string{"settings"}}, nil)
}

// ChangeSettings changes what req gives of the account's settings.
func (c *Client) ChangeSettings(ctx context.Context, req api.ChangeSettings) (api.Settings, error) {
	return call[api.Settings](ctx, c, request{method: http.MethodPatch, path: []string{"settings"}}, req)
}

// DeleteChat deletes a chat with all it has.
func (c *Client) DeleteChat(ctx context.Context, chat string) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: []string{"chats", chat}}, nil)
	return err
}

// Start begins a command and returns at once. When the daemon goes away in the
// middle of the request it is asked again, and begins the command once.
func (c *Client) Start(ctx context.Context, chat string, cmd api.NewCommand) (api.Command, error) {
	return c.StartOnce(ctx, chat, rand.Text(), cmd)
}

// StartOnce is Start under an idempotency key of the caller's: asked again with
// the same key and request, it answers with the same command.
func (c *Client) StartOnce(ctx context.Context, chat, key string, cmd api.NewCommand) (api.Command, error) {
	return retry(ctx, func(func()) (api.Command, error) {
		started, err := call[api.Command](ctx, c, request{
			method: http.MethodPost, path: []string{"chats", chat, "commands"}, header: http.Header{"Idempotency-Key": {key}},
		}, cmd)
		if err != nil {
			err = cut(err)
		}
		return started, err
	})
}

// OpenTurn opens the chat's next turn; an empty id lets the daemon choose one.
func (c *Client) OpenTurn(ctx context.Context, chat, id string) (api.Turn, error) {
	return call[api.Turn](ctx, c, request{method: http.MethodPost, path: []string{"chats", chat, "turns"}}, api.NewTurn{ID: id})
}

// Turns lists a chat's turns.
func (c *Client) Turns(ctx context.Context, chat string) ([]api.Turn, error) {
	return call[[]api.Turn](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "turns"}}, nil)
}

// Commands lists a chat's commands.
func (c *Client) Commands(ctx context.Context, chat string) ([]api.Command, error) {
	return call[[]api.Command](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "commands"}}, nil)
}

// Command shows one command.
func (c *Client) Command(ctx context.Context, chat, id string) (api.Command, error) {
	return call[api.Command](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "commands", id}}, nil)
}

// waitSlice is how long one request waits, in seconds.
const waitSlice = 60

// Wait returns the command once it has ended.
func (c *Client) Wait(ctx context.Context, chat, id string) (api.Command, error) {
	return c.WaitIn(ctx, chat, id, "")
}

// WaitIn waits within a turn: when the turn is over, the command comes back
// marked as continuing.
func (c *Client) WaitIn(ctx context.Context, chat, id, turn string) (api.Command, error) {
	for {
		cmd, err := call[api.Command](ctx, c, request{
			method: http.MethodGet, path: []string{"chats", chat, "commands", id},
			query: url.Values{"wait": {strconv.Itoa(waitSlice)}, "turn": {turn}},
		}, nil)
		if err != nil || cmd.State.Ended() || cmd.Continues {
			return cmd, err
		}
	}
}

// Kill signals a command's main process; with signal 0 the command is canceled.
func (c *Client) Kill(ctx context.Context, chat, id string, signal int) error {
	_, err := call[struct{}](ctx, c, request{
		method: http.MethodPost, path: []string{"chats", chat, "commands", id, "kill"},
		query: url.Values{"signal": {strconv.Itoa(signal)}},
	}, nil)
	return err
}

// Feed sends r to the stdin of a command that was started with Stream or a
// TTY, and then its end.
func (c *Client) Feed(ctx context.Context, chat, id string, r io.Reader) error {
	res, err := c.do(ctx, request{
		method: http.MethodPost, path: []string{"chats", chat, "commands", id, "stdin"}, body: io.NopCloser(r),
	})
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// Resize changes the size of a command's terminal.
func (c *Client) Resize(ctx context.Context, chat, id string, size api.TTY) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodPost, path: []string{"chats", chat, "commands", id, "resize"}}, size)
	return err
}

func (c *Client) open(ctx context.Context, r request) (io.ReadCloser, int64, error) {
	res, err := c.do(ctx, r)
	if err != nil {
		return nil, 0, err
	}
	return res.Body, res.ContentLength, nil
}
