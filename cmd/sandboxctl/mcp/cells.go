package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

type paletteArgs struct {
	Pill  string `json:"pill,omitempty" jsonschema:"only cells of this pill: video-edit, frame-extract, image-edit, audio-edit or file"`
	Type  string `json:"type,omitempty" jsonschema:"only cells of this media type, such as image or video/mp4"`
	Label string `json:"label,omitempty" jsonschema:"only cells under this label"`
	Text  string `json:"text,omitempty" jsonschema:"only cells whose name, label or type holds this text"`
}

func (a paletteArgs) query() client.CellQuery {
	return client.CellQuery{Pill: api.Pill(a.Pill), Type: a.Type, Label: a.Label, Text: a.Text}
}

type cellArgs struct {
	Cell string `json:"cell" jsonschema:"the cell, such as #3"`
}

type exportArgs struct {
	To string `json:"to" jsonschema:"save the ZIP as this file of this host, below the server's directory"`
	paletteArgs
}

func (s *server) addCellTools() {
	tool(s, &sdk.Tool{
		Name: "cells", Annotations: reading("The palette of cells"),
		Description: "List the chat's cells, the finished files: ordinal, pill, name, size, facts. Pick from them by #ordinal in a run's inputs.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in paletteArgs) (*sdk.CallToolResult, error) {
		cells, err := s.cfg.Client.FindCells(ctx, s.cfg.Chat, in.query())
		if err != nil {
			return nil, err
		}
		lines := []string{fmt.Sprintf("%d cells", len(cells))}
		for _, c := range cells {
			lines = append(lines, cellText(c))
		}
		return said("%s", strings.Join(lines, "\n")), nil
	})
	tool(s, &sdk.Tool{
		Name: "look", Annotations: reading("Look at a cell"),
		Description: "See a cell: a picture itself if it is small, else its thumbnail; a video's strip of frames; a sound's waveform. Use it to judge your work before you say that it is done.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in cellArgs) (*sdk.CallToolResult, error) {
		return s.look(ctx, in.Cell)
	})
	tool(s, &sdk.Tool{
		Name: "provenance", Annotations: reading("How a cell was made"),
		Description: "How a cell was made: the command or source, the inputs' digests, the environment, the image.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in cellArgs) (*sdk.CallToolResult, error) {
		cell, err := s.cell(ctx, in.Cell)
		if err != nil {
			return nil, err
		}
		p, err := s.cfg.Client.Provenance(ctx, s.cfg.Chat, cell.Ordinal)
		return asJSON(p, err)
	})
	tool(s, &sdk.Tool{
		Name: "replay", Annotations: reading("Make a cell again"),
		Description: "Prove that a cell is repeatable: its command runs again in a fresh sandbox without a network, and the bytes are compared. Takes as long as the command did.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in cellArgs) (*sdk.CallToolResult, error) {
		cell, err := s.cell(ctx, in.Cell)
		if err != nil {
			return nil, err
		}
		r, err := s.cfg.Client.Replay(ctx, s.cfg.Chat, cell.Ordinal)
		return asJSON(r, err)
	})
	tool(s, &sdk.Tool{
		Name: "export", Annotations: adding("Export cells as a ZIP"),
		Description: "Save the chat's cells, or those of the palette that match, as a ZIP with a manifest below this server's directory.",
	}, func(ctx context.Context, _ *sdk.CallToolRequest, in exportArgs) (*sdk.CallToolResult, error) {
		r, name, err := s.cfg.Client.Export(ctx, s.cfg.Chat, in.query())
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return s.save(in.To, name, r)
	})
	s.mcp.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "cell", Title: "A cell", URITemplate: "cell:///{ordinal}",
		Description: "A finished file of the chat by its ordinal: the file itself up to 4 MiB, else a small picture of it.",
	}, s.readCell)
}

// cell looks up what "#3" or "3" names.
func (s *server) cell(ctx context.Context, name string) (api.Cell, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(name, "#"))
	if err != nil || n < 1 {
		return api.Cell{}, fmt.Errorf("%q is no cell: write it as #3; the tool cells lists them", name)
	}
	return s.cfg.Client.Cell(ctx, s.cfg.Chat, n)
}

// look shows a cell as pictures.
func (s *server) look(ctx context.Context, name string) (*sdk.CallToolResult, error) {
	cell, err := s.cell(ctx, name)
	if err != nil {
		return nil, err
	}
	res := said("%s", cellText(cell))
	pictures, err := s.sight(ctx, cell)
	if err != nil {
		return nil, err
	}
	if len(pictures) == 0 {
		res = said("%s\nThere is no picture of it. Read it with get_file.", cellText(cell))
	}
	res.Content = append(res.Content, pictures...)
	return res, nil
}

// shown are the media types of pictures that models take.
var shown = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// maxShown is the largest picture that is shown itself, in bytes.
const maxShown = 1 << 20

// sight returns the pictures that there are of a cell: itself, or previews.
func (s *server) sight(ctx context.Context, cell api.Cell) ([]sdk.Content, error) {
	for _, kind := range shown {
		if cell.File.ContentType == kind && cell.File.Size <= maxShown {
			r, _, err := s.cfg.Client.OpenCell(ctx, s.cfg.Chat, cell.Ordinal)
			return picture(r, kind, err)
		}
	}
	var content []sdk.Content
	for _, kind := range cell.Previews {
		if kind == "thumb" && len(cell.Previews) > 1 {
			continue // the strip shows more
		}
		one, err := s.preview(ctx, cell, kind)
		if err != nil {
			return nil, err
		}
		content = append(content, one...)
	}
	return content, nil
}

func (s *server) preview(ctx context.Context, cell api.Cell, kind string) ([]sdk.Content, error) {
	r, _, err := s.cfg.Client.OpenPreview(ctx, s.cfg.Chat, cell.Ordinal, kind)
	return picture(r, "", err)
}

// picture reads one; an empty kind is found out.
func picture(r io.ReadCloser, kind string, err error) ([]sdk.Content, error) {
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(r, maxInline))
	if err := errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("read a picture: %w", err)
	}
	if kind != "" {
		return []sdk.Content{&sdk.ImageContent{Data: body, MIMEType: kind}}, nil
	}
	return []sdk.Content{contentOf(body)}, nil
}

// maxPictures bounds the small pictures that come with a command's end.
const maxPictures = 3

// pictures are links to a command's cells and small pictures of the first. A
// picture that is not there yet is left out: look shows it later.
func (s *server) pictures(ctx context.Context, cells []api.Cell) []sdk.Content {
	var content []sdk.Content
	for i, c := range cells {
		size := c.File.Size
		content = append(content, &sdk.ResourceLink{URI: cellURI(c.Ordinal), Name: c.File.Name, MIMEType: c.File.ContentType, Size: &size})
		if i >= maxPictures {
			continue
		}
		for _, kind := range c.Previews {
			if kind != "thumb" {
				continue
			}
			if one, err := s.preview(ctx, c, kind); err == nil {
				content = append(content, one...)
			}
		}
	}
	return content
}

func cellURI(ordinal int) string { return "cell:///" + strconv.Itoa(ordinal) }

// addCellResource lists a cell as a resource, or again after it has changed.
func (s *server) addCellResource(c api.Cell) {
	s.mcp.AddResource(&sdk.Resource{
		URI: cellURI(c.Ordinal), Name: fmt.Sprintf("#%d %s", c.Ordinal, printable(c.File.Name)), MIMEType: c.File.ContentType, Size: c.File.Size,
		Description: cellText(c),
	}, s.readCell)
}

// readCell returns a cell's file if it is small, else a picture of it.
func (s *server) readCell(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	uri := req.Params.URI
	cell, err := s.cell(ctx, strings.TrimPrefix(uri, "cell:///"))
	if err != nil {
		return nil, sdk.ResourceNotFoundError(uri)
	}
	one := &sdk.ResourceContents{URI: uri, MIMEType: cell.File.ContentType}
	var r io.ReadCloser
	switch {
	case cell.File.Size <= maxInline:
		r, _, err = s.cfg.Client.OpenCell(ctx, s.cfg.Chat, cell.Ordinal)
	case len(cell.Previews) > 0:
		one.MIMEType = ""
		r, _, err = s.cfg.Client.OpenPreview(ctx, s.cfg.Chat, cell.Ordinal, cell.Previews[len(cell.Previews)-1])
	default:
		err = fmt.Errorf("cell #%d is too large to be read here: save it with get_file", cell.Ordinal)
	}
	if err != nil {
		return nil, explain(err)
	}
	defer r.Close()
	if one.Blob, err = io.ReadAll(io.LimitReader(r, maxInline)); err != nil {
		return nil, fmt.Errorf("read cell #%d: %w", cell.Ordinal, err)
	}
	if one.MIMEType == "" {
		one.MIMEType = mimeOf(one.Blob)
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{one}}, nil
}
