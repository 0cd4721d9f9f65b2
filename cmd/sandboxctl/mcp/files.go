package mcp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/dustin/go-humanize"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

type putArgs struct {
	To     string  `json:"to,omitempty" jsonschema:"where it goes, below /inputs, /workspace or /outputs; default /inputs with its own name"`
	File   string  `json:"file,omitempty" jsonschema:"a file of this host, below the server's directory"`
	Text   *string `json:"text,omitempty" jsonschema:"or its content as text"`
	Base64 string  `json:"base64,omitempty" jsonschema:"or its content in base64"`
}

type getArgs struct {
	Path string `json:"path" jsonschema:"a file of the sandbox such as /workspace/log.txt, or a cell such as #3"`
	To   string `json:"to,omitempty" jsonschema:"save it as this file of this host, below the server's directory; without it the content is returned (text, pictures and sounds up to 4 MiB)"`
}

type listArgs struct {
	Path string `json:"path,omitempty" jsonschema:"a directory of the sandbox; default /workspace"`
}

func (s *server) addFileTools() {
	tool(s, &sdk.Tool{
		Name: "put_file", Annotations: adding("Put a file into the sandbox"),
		Description: "Put a file into the sandbox: one of this host below the directory that this server may read, or a content. Large media go by file, never by base64. " +
			"A cell needs no put_file: name it in a run's inputs.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in putArgs) (*sdk.CallToolResult, error) {
		return s.put(ctx, in)
	})
	tool(s, &sdk.Tool{
		Name: "get_file", Annotations: adding("Get a file or cell"),
		Description: "Get a file of the sandbox or a cell: saved below this server's directory, or its content if it is small. To look at a picture or video use look.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in getArgs) (*sdk.CallToolResult, error) {
		return s.get(ctx, in)
	})
	tool(s, &sdk.Tool{
		Name: "list_files", Annotations: reading("List files"),
		Description: "List a directory of the sandbox. Its files live as long as the sandbox; cells live longer.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in listArgs) (*sdk.CallToolResult, error) {
		files, err := s.cfg.Client.Files(ctx, s.cfg.Chat, or(in.Path, "/workspace"))
		if err != nil {
			return nil, err
		}
		var lines []string
		for _, f := range files {
			lines = append(lines, fmt.Sprintf("%s %10s  %s", f.Mode, humanize.IBytes(uint64(f.Size)), printable(f.Path)))
		}
		if len(lines) == 0 {
			return said("it is empty"), nil
		}
		return said("%s", strings.Join(lines, "\n")), nil
	})
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// put sends a file into the sandbox.
func (s *server) put(ctx context.Context, in putArgs) (*sdk.CallToolResult, error) {
	var from io.Reader
	ways := 0
	name := ""
	if in.File != "" {
		ways++
		local, err := s.local(in.File)
		if err != nil {
			return nil, err
		}
		f, err := s.openLocal(local)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		from, name = f, filepath.Base(local)
	}
	if in.Text != nil {
		ways++
		from = strings.NewReader(*in.Text)
	}
	if in.Base64 != "" {
		ways++
		from = base64.NewDecoder(base64.StdEncoding, strings.NewReader(in.Base64))
	}
	if ways != 1 {
		return nil, errors.New("give exactly one of file, text and base64")
	}
	to := in.To
	if to == "" {
		if name == "" {
			return nil, errors.New("say with to where the content goes, such as /inputs/notes.txt")
		}
		to = path.Join("/inputs", name)
	}
	info, err := s.cfg.Client.PutFile(ctx, s.cfg.Chat, to, from)
	if err != nil {
		return nil, err
	}
	return said("%s, %s", info.Path, humanize.IBytes(uint64(info.Size))), nil
}

// openLocal opens a regular file below the directory.
func (s *server) openLocal(path string) (*os.File, error) {
	st, err := s.dir.Stat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return s.dir.Open(path)
}

// maxInline is the largest content that is returned to the model, in bytes.
const maxInline = 4 << 20

// get fetches a file or a cell.
func (s *server) get(ctx context.Context, in getArgs) (*sdk.CallToolResult, error) {
	r, size, name, err := s.open(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if in.To != "" {
		return s.save(in.To, name, r)
	}
	if size > maxInline {
		return nil, fmt.Errorf("%s is %s large: save it with to, or look at it", in.Path, humanize.IBytes(uint64(size)))
	}
	body, err := io.ReadAll(io.LimitReader(r, maxInline+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", in.Path, err)
	}
	return &sdk.CallToolResult{Content: []sdk.Content{contentOf(body)}}, nil
}

// open opens a file of the sandbox, or a cell's.
func (s *server) open(ctx context.Context, what string) (io.ReadCloser, int64, string, error) {
	if !strings.HasPrefix(what, "#") {
		r, size, err := s.cfg.Client.OpenFile(ctx, s.cfg.Chat, what)
		return r, size, path.Base(what), err
	}
	cell, err := s.cell(ctx, what)
	if err != nil {
		return nil, 0, "", err
	}
	r, size, err := s.cfg.Client.OpenCell(ctx, s.cfg.Chat, cell.Ordinal)
	return r, size, cell.File.Name, err
}

// save writes a file below the directory, whole or not at all.
func (s *server) save(to, name string, r io.Reader) (*sdk.CallToolResult, error) {
	local, err := s.local(to)
	if err != nil {
		return nil, err
	}
	if st, err := s.dir.Stat(local); err == nil && st.IsDir() {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("its own name %q can't be used here: name the file", name)
		}
		local = filepath.Join(local, name)
	}
	part := local + ".part"
	f, err := s.dir.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(f, r)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = s.dir.Rename(part, local)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("save %s: %w", local, err), s.dir.Remove(part))
	}
	return said("saved %s, %s", filepath.Join(s.cfg.Dir, local), humanize.IBytes(uint64(n))), nil
}

// contentOf is a small file as the model can take it.
func contentOf(body []byte) sdk.Content {
	kind := mimeOf(body)
	switch {
	case strings.HasPrefix(kind, "text/"):
		return &sdk.TextContent{Text: string(body)}
	case strings.HasPrefix(kind, "image/"):
		return &sdk.ImageContent{Data: body, MIMEType: kind}
	case strings.HasPrefix(kind, "audio/"):
		return &sdk.AudioContent{Data: body, MIMEType: kind}
	}
	return &sdk.TextContent{Text: fmt.Sprintf("%d bytes of %s, not shown", len(body), kind)}
}
