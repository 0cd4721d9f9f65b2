package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"mediasandbox/daemon/api"
)

func pathQuery(path string) url.Values { return url.Values{"path": {path}} }

// PutFile writes r to a path in the chat's sandbox, whole or not at all.
func (c *Client) PutFile(ctx context.Context, chat, path string, r io.Reader) (api.FileInfo, error) {
	return c.put(ctx, chat, "content", pathQuery(path), r)
}

// PutTree unpacks a tar stream as the directory at a path in the chat's
// sandbox, whole or not at all.
func (c *Client) PutTree(ctx context.Context, chat, path string, replace bool, r io.Reader) (api.FileInfo, error) {
	query := pathQuery(path)
	query.Set("replace", strconv.FormatBool(replace))
	return c.put(ctx, chat, "tree", query, r)
}

func (c *Client) put(ctx context.Context, chat, what string, query url.Values, r io.Reader) (api.FileInfo, error) {
	var info api.FileInfo
	res, err := c.do(ctx, request{
		method: http.MethodPut, path: []string{"chats", chat, "files", what}, query: query,
		body: io.NopCloser(r), // r stays the caller's to close
	})
	if err != nil {
		return info, err
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(&info); err != nil {
		return info, fmt.Errorf("decode the daemon's answer: %w", err)
	}
	return info, nil
}

// OpenFile reads a file of the chat's sandbox. The caller closes it.
func (c *Client) OpenFile(ctx context.Context, chat, path string) (io.ReadCloser, int64, error) {
	return c.open(ctx, request{method: http.MethodGet, path: []string{"chats", chat, "files", "content"}, query: pathQuery(path)})
}

// Files lists a directory of the chat's sandbox.
func (c *Client) Files(ctx context.Context, chat, path string) ([]api.FileInfo, error) {
	return call[[]api.FileInfo](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "files"}, query: pathQuery(path)}, nil)
}

// RemoveFile removes a file or a directory of the chat's sandbox.
func (c *Client) RemoveFile(ctx context.Context, chat, path string) error {
	_, err := call[struct{}](ctx, c, request{method: http.MethodDelete, path: []string{"chats", chat, "files"}, query: pathQuery(path)}, nil)
	return err
}

// StatFile describes a file, a directory or a link of the chat's sandbox.
func (c *Client) StatFile(ctx context.Context, chat, path string) (api.FileInfo, error) {
	return call[api.FileInfo](ctx, c, request{method: http.MethodGet, path: []string{"chats", chat, "files", "stat"}, query: pathQuery(path)}, nil)
}

// MoveFile renames a file or a directory of the chat's sandbox.
func (c *Client) MoveFile(ctx context.Context, chat string, move api.MoveFile) (api.FileInfo, error) {
	return call[api.FileInfo](ctx, c, request{method: http.MethodPost, path: []string{"chats", chat, "files", "move"}}, move)
}

// GetTree reads a directory of the chat's sandbox as a tar stream, and returns
// what was left out of it.
func (c *Client) GetTree(ctx context.Context, chat, path string, read func(io.Reader) error) (api.TreeEnd, error) {
	var end api.TreeEnd
	res, err := c.do(ctx, request{method: http.MethodGet, path: []string{"chats", chat, "files", "tree"}, query: pathQuery(path)})
	if err != nil {
		return end, err
	}
	defer res.Body.Close()
	readErr := read(res.Body)
	// The trailer comes after the last byte, and knows better why that came
	// early.
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return end, errors.Join(readErr, fmt.Errorf("read the tree: %w", err))
	}
	if err := json.Unmarshal([]byte(res.Trailer.Get(api.TreeTrailer)), &end); err != nil {
		return end, errors.Join(readErr, fmt.Errorf("the tree was cut off: %w", err))
	}
	if end.Error != nil {
		return end, end.Error
	}
	return end, readErr
}
