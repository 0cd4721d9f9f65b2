package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"time"

	"mediasandbox/daemon/api"
)

// serveContent answers with a file that a guest made, or the range of it that
// was asked for. It must not act as a page of this origin.
func (s *server) serveContent(w http.ResponseWriter, r *http.Request, modified time.Time, content io.ReadSeeker) {
	w.Header().Set("Content-Security-Policy", "sandbox")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	http.ServeContent(&contentWriter{ResponseWriter: w, server: s, request: r}, r, "", modified, content)
}

// contentWriter replaces the plain text with which the standard library refuses
// a range by the API's error.
type contentWriter struct {
	http.ResponseWriter
	server  *server
	request *http.Request
	refused bool
}

// WriteHeader implements http.ResponseWriter.
func (w *contentWriter) WriteHeader(status int) {
	if status < http.StatusBadRequest {
		w.ResponseWriter.WriteHeader(status)
		return
	}
	w.refused = true
	w.Header().Set("Content-Type", "application/json")
	w.ResponseWriter.WriteHeader(status)
	e := api.Errorf(api.CodeInvalid, "%s", http.StatusText(status)).WithHint("Content-Range says how long the file is")
	_ = json.NewEncoder(w.ResponseWriter).Encode(w.server.wire(w.request.Context(), e)) // the caller may have gone away
}

// Write implements http.ResponseWriter.
func (w *contentWriter) Write(p []byte) (int, error) {
	if w.refused {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom, so that the kernel may copy a file.
func (w *contentWriter) ReadFrom(r io.Reader) (int64, error) {
	if w.refused {
		return io.Copy(io.Discard, r)
	}
	return io.Copy(w.ResponseWriter, r)
}
