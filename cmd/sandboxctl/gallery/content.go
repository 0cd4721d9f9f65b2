package gallery

import (
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	"mediasandbox/daemon/api"
)

// contentPolicy is that of files which sandboxes made: should a browser make a
// page of one after all, it has no origin, no script and no way out.
const contentPolicy = "sandbox; default-src 'none'"

// hostile makes an answer a file that is shown by the page's own elements, or
// saved, and is nothing in itself. Only what an <img>, <video> or <audio> shows
// keeps its type: nothing else can become a script or a style of the page.
func hostile(h http.Header, contentType, name string) {
	kind, _, _ := strings.Cut(contentType, "/")
	if kind != "image" && kind != "video" && kind != "audio" {
		contentType = "application/octet-stream"
	}
	h.Set("Content-Type", contentType)
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cache-Control", "private, no-cache")
	// A browser saves what is opened by itself; elements show it all the same.
	disposition := mime.FormatMediaType("attachment", map[string]string{"filename": name})
	if disposition == "" {
		disposition = "attachment"
	}
	h.Set("Content-Disposition", disposition)
}

// content passes on a cell's file or the range of it that was asked for.
func (g *Gallery) content(w http.ResponseWriter, r *http.Request) error {
	n, err := ordinal(r)
	if err != nil {
		return err
	}
	chat := r.PathValue("chat")
	cell, err := g.cfg.Client.Cell(r.Context(), chat, n)
	if err != nil {
		return err
	}
	res, err := g.cfg.Client.CellContent(r.Context(), chat, n, passed(r.Header, "Range", "If-Range", "If-None-Match"))
	if err != nil {
		return err
	}
	defer res.Body.Close()
	hostile(w.Header(), res.Header.Get("Content-Type"), cell.File.Name)
	for name, values := range passed(res.Header, "Accept-Ranges", "Content-Length", "Content-Range", "Etag") {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(w, res.Body); err != nil && r.Context().Err() == nil {
		g.cfg.Log.Warn("pass on a cell's file", "chat", chat, "cell", n, "error", err)
		panic(http.ErrAbortHandler) // the browser must not take it for whole
	}
	return nil
}

// passed picks headers that are passed on.
func passed(h http.Header, names ...string) http.Header {
	out := make(http.Header)
	for _, name := range names {
		if values := h.Values(name); len(values) > 0 {
			out[name] = values
		}
	}
	return out
}

func (g *Gallery) preview(w http.ResponseWriter, r *http.Request) error {
	n, err := ordinal(r)
	if err != nil {
		return err
	}
	body, size, err := g.cfg.Client.OpenPreview(r.Context(), r.PathValue("chat"), n, r.URL.Query().Get("kind"))
	if err != nil {
		return err
	}
	return g.pass(w, r, body, size, "image/webp", "preview.webp")
}

// input passes on a file that a cell was made from, for a look at before and
// after.
func (g *Gallery) input(w http.ResponseWriter, r *http.Request) error {
	n, err := ordinal(r)
	if err != nil {
		return err
	}
	chat, name := r.PathValue("chat"), r.URL.Query().Get("name")
	made, err := g.cfg.Client.Provenance(r.Context(), chat, n)
	if err != nil {
		return err
	}
	for _, in := range made.Inputs {
		if in.Name != name {
			continue
		}
		body, size, err := g.cfg.Client.OpenInput(r.Context(), chat, n, name)
		if err != nil {
			return err
		}
		return g.pass(w, r, body, size, in.ContentType, name)
	}
	return api.Errorf(api.CodeFileNotFound, "cell #%d was made from no input %q", n, name)
}

func (g *Gallery) pass(w http.ResponseWriter, r *http.Request, body io.ReadCloser, size int64, contentType, name string) error {
	defer body.Close()
	hostile(w.Header(), contentType, name)
	if size >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	}
	if _, err := io.Copy(w, body); err != nil && r.Context().Err() == nil {
		g.cfg.Log.Warn("pass on a file", "path", r.URL.Path, "error", err)
		panic(http.ErrAbortHandler) // the browser must not take it for whole
	}
	return nil
}

func (g *Gallery) export(w http.ResponseWriter, r *http.Request) error {
	// The archive of a large chat takes its time; it ends with the request.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	body, name, err := g.cfg.Client.Export(ctx, r.PathValue("chat"), cellQuery(r))
	if err != nil {
		return err
	}
	return g.pass(w, r, body, -1, "application/zip", name)
}
