package session

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"mediasandbox/daemon/api"
)

//go:embed fetch.py
var fetchSource []byte

const (
	// fetchEvery is the least time between two events of a download's progress.
	fetchEvery = 2 * time.Second
	// maxFetchLine bounds a line of the downloader, in bytes.
	maxFetchLine = 1 << 10
)

// isURL tells whether an input is to be downloaded.
func isURL(input string) bool {
	return strings.HasPrefix(input, "https://") || strings.HasPrefix(input, "http://")
}

// urlName is the name below /inputs that a download gets: the last part of its
// path.
func urlName(input string) (string, error) {
	refuse := func(why string) (string, error) {
		return "", api.Errorf(api.CodeInvalid, "input %q can't be downloaded: %s", input, why)
	}
	u, err := url.Parse(input)
	switch {
	case err != nil:
		return refuse("it is no URL")
	case u.Host == "":
		return refuse("it names no host")
	case u.User != nil:
		return refuse("user names in URLs are not taken, since they would be shown with the command")
	}
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '/' {
			return '_'
		}
		return r
	}, path.Base(u.Path))
	if name == "." || name == ".." || name == "_" || name == "" {
		name = "download"
	}
	if len(name) > 255 {
		return refuse("its name is over 255 bytes long")
	}
	return name, nil
}

// fetched is what the downloader says; it runs among hostile processes.
type fetched struct {
	Bytes int64  `json:"bytes"`
	Total int64  `json:"total"`
	Done  *int64 `json:"done"`
	Error string `json:"error"`
}

// placeURL downloads an input in the sandbox, through its gate, and copies it
// below /inputs. The copy is the host's own: no guest process holds it open, so
// its digest stays true.
func (e *Engine) placeURL(ctx context.Context, l *live, rec CommandRecord, input string) error {
	name, err := urlName(input)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, e.cfg.MaxTimeout, api.Errorf(api.CodeInvalid, "downloading %s took longer than %s", input, e.cfg.MaxTimeout))
	defer cancel()
	staged := location{"tmp", temporaryName()}
	defer func() {
		_ = inPlace(l.record.Spec.Disk, staged, false, func(p place) error { return p.root.Remove(p.base) })
	}() // it may never have come to be
	said := &fetchSink{progress: func(f fetched) { e.tellProgress(rec, name, f) }}
	_, err = e.ask(ctx, l.handle, helper{
		name: "fetch", source: fetchSource, args: []string{input, staged.String(), strconv.FormatInt(e.cfg.MaxDownload, 10)}, said: said,
	})
	switch {
	case err != nil:
		return err
	case said.last.Error != "":
		return api.Errorf(api.CodeInvalid, "downloading %s: %s", input, said.last.Error[:min(len(said.last.Error), maxNote)])
	case said.last.Done == nil:
		return fmt.Errorf("downloading %s: the downloader did not say how it ended", input)
	}
	return e.takeDownload(l, staged, location{"inputs", name}, input)
}

// takeDownload copies what was downloaded to where commands find it.
func (e *Engine) takeDownload(l *live, staged, at location, input string) error {
	f, err := openIn(l.record.Spec.Disk, staged)
	if err != nil {
		return err
	}
	in, _, err := writeFile(l.record.Spec.Disk, at, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if in.Size > e.cfg.MaxDownload {
		return api.Errorf(api.CodeTooLarge, "downloading %s: it is larger than the limit of %d bytes", input, e.cfg.MaxDownload)
	}
	in.URL = input
	l.setInput(at, in)
	return nil
}

// tellProgress tells the chat how far a download is.
func (e *Engine) tellProgress(rec CommandRecord, name string, f fetched) {
	if f.Bytes < 0 || f.Total < 0 {
		return
	}
	err := e.update(rec.Key(), func(tx Tx) error {
		return emit(tx, rec.Key(), api.Event{Type: api.EventInputProgress, Progress: &api.Progress{
			Command: rec.ID, Input: name, Bytes: f.Bytes, Total: f.Total,
		}})
	})
	if err != nil {
		e.log.Warn("tell how far a download is", "command", rec.ID, "error", err)
	}
}

// fetchSink reads the downloader's lines.
type fetchSink struct {
	progress func(fetched)

	line []byte
	told time.Time
	last fetched
}

// Write implements io.Writer.
func (s *fetchSink) Write(p []byte) (int, error) {
	for chunk := range bytes.Lines(p) {
		s.line = append(s.line, chunk[:min(len(chunk), maxFetchLine-len(s.line))]...)
		if !bytes.HasSuffix(chunk, []byte("\n")) {
			break
		}
		var f fetched
		if json.Unmarshal(s.line, &f) == nil {
			s.last = f
			if f.Bytes > 0 && now().Sub(s.told) >= fetchEvery {
				s.told = now()
				s.progress(f)
			}
		}
		s.line = s.line[:0]
	}
	return len(p), nil
}
