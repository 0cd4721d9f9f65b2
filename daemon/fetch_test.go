package daemon_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/runtime/sandbox"
)

// origin serves one file in many ways, on the host's loopback. Sandboxes know it
// as files.internal.
type origin struct {
	file []byte
	// cut is how many bytes an answer of /breaks and its like has.
	cut int
	// asked counts the requests, ranged those for a part.
	asked, ranged atomic.Int64
}

func (o *origin) start(t *testing.T) daemontest.Option {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/whole/clip.bin", func(w http.ResponseWriter, r *http.Request) { o.serve(w, r, `"v1"`) })
	mux.HandleFunc("/breaks/clip.bin", func(w http.ResponseWriter, r *http.Request) { o.serve(&breaking{w, o.cut}, r, `"v1"`) })
	mux.HandleFunc("/changes/clip.bin", func(w http.ResponseWriter, r *http.Request) {
		// The first answer breaks, and the file is another one afterwards.
		if o.asked.Load() == 0 {
			w = &breaking{w, o.cut}
		}
		o.serve(w, r, fmt.Sprintf(`"v%d"`, o.asked.Load()))
	})
	mux.HandleFunc("/dies/clip.bin", func(w http.ResponseWriter, r *http.Request) { o.serve(&breaking{w, 0}, r, `"v1"`) })
	mux.HandleFunc("/chunked", func(w http.ResponseWriter, _ *http.Request) {
		for b := o.file; len(b) > 0; {
			n, err := w.Write(b[:min(len(b), 10_000)])
			if err != nil {
				return // it has heard enough
			}
			b = b[n:]
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/whole/clip.bin", http.StatusFound) })
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	service, err := sandbox.ParseNetworkService("files.internal:80 = " + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return withService(service)
}

func (o *origin) serve(w http.ResponseWriter, r *http.Request, tag string) {
	o.asked.Add(1)
	if r.Header.Get("Range") != "" {
		o.ranged.Add(1)
	}
	w.Header().Set("ETag", tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.file))
}

// breaking lets an answer's connection break after so many bytes.
type breaking struct {
	http.ResponseWriter
	left int
}

func (b *breaking) Write(p []byte) (int, error) {
	if len(p) > b.left {
		_, _ = b.ResponseWriter.Write(p[:b.left])
		b.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b.left -= len(p)
	return b.ResponseWriter.Write(p)
}

func TestDownloadedInputs(t *testing.T) {
	o := &origin{file: make([]byte, 3_000_000), cut: 1_100_000}
	for i := range o.file {
		o.file[i] = byte(rand.IntN(256))
	}
	sum := sha256.Sum256(o.file)
	digest := hex.EncodeToString(sum[:])
	d := daemontest.Start(t, o.start(t), func(c *config.Config) { c.Limits.Download = 4 << 20 })
	get := func(path string) api.Command {
		t.Helper()
		o.asked.Store(0)
		o.ranged.Store(0)
		return d.Finish(api.NewCommand{Shell: "sha256sum /inputs/*; ls -A /tmp", Inputs: []string{"http://files.internal" + path}})
	}
	for path, ranged := range map[string]int64{"/whole/clip.bin": 0, "/breaks/clip.bin": 2, "/changes/clip.bin": 1, "/chunked": 0, "/moved": 0} {
		cmd := get(path)
		name := path[strings.LastIndexByte(path, '/')+1:]
		out, _ := d.Printed(cmd)
		if !strings.Contains(out, digest+"  /inputs/"+name+"\n") || strings.Contains(out, ".part") {
			t.Errorf("%s: %s (%s): %q", path, cmd.State, cmd.Reason, out)
		}
		want := api.InputFile{Name: name, Digest: api.Digest{SHA256: digest, Size: 3_000_000}, ContentType: "application/octet-stream", URL: "http://files.internal" + path}
		if len(cmd.InputFiles) != 1 || cmd.InputFiles[0] != want {
			t.Errorf("%s: the record has %+v", path, cmd.InputFiles)
		}
		if o.ranged.Load() != ranged {
			t.Errorf("%s: %d of %d requests were for a part, want %d", path, o.ranged.Load(), o.asked.Load(), ranged)
		}
	}
	if ev := eventOf(t, d, api.EventInputProgress); ev.Progress == nil || ev.Progress.Bytes == 0 || ev.Progress.Input == "" {
		t.Errorf("the event is %+v", ev)
	}
	for path, want := range map[string]string{
		"/nowhere":       "the server answered 404",
		"/dies/clip.bin": "the connection broke",
		"/away":          "edirection to url",
		"//":             "404",
	} {
		if cmd := get(path); cmd.State != api.StateFailed || !strings.Contains(cmd.Reason, want) || cmd.StartedAt != nil {
			t.Errorf("%s: %s (%s), want %q", path, cmd.State, cmd.Reason, want)
		}
	}
	o.file = make([]byte, 4<<20+1)
	for _, path := range []string{"/whole/clip.bin", "/chunked"} {
		if cmd := get(path); cmd.State != api.StateFailed || !strings.Contains(cmd.Reason, "limit of "+strconv.Itoa(4<<20)) {
			t.Errorf("too large by %s: %s (%s)", path, cmd.State, cmd.Reason)
		}
	}
	if out, _ := d.Printed(d.Shell("ls -A /tmp")); out != "" {
		t.Errorf("left in /tmp: %s", out)
	}
}

// TestDownloadsObeyTheGate asks for what the chat's policy closes.
func TestDownloadsObeyTheGate(t *testing.T) {
	o := &origin{file: []byte("content")}
	d := daemontest.Start(t, o.start(t))
	rules := []string{"deny *.internal"}
	if _, err := d.SetNetwork(t.Context(), api.DefaultChat, api.NetworkSettings{Rules: &rules}); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"http://files.internal/whole/clip.bin", "http://127.0.0.1/x"} {
		cmd := d.Finish(api.NewCommand{Argv: []string{"true"}, Inputs: []string{url}})
		if cmd.State != api.StateFailed || !strings.Contains(cmd.Reason, "downloading "+url) || o.asked.Load() != 0 {
			t.Errorf("%s: %s (%s), asked %d times", url, cmd.State, cmd.Reason, o.asked.Load())
		}
	}
	for _, url := range []string{"https://", "http://user:secret@files.internal/x", "http://[::1", "http:///x"} {
		_, err := d.Client.Start(t.Context(), api.DefaultChat, api.NewCommand{Argv: []string{"true"}, Inputs: []string{url}})
		var known *api.Error
		if !errors.As(err, &known) || known.Code != api.CodeInvalid {
			t.Errorf("%s: %v", url, err)
		}
	}
}
