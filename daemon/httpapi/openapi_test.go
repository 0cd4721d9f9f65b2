package httpapi

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// document asks a server for its OpenAPI document; no engine is needed.
func document(t *testing.T) (*server, []byte) {
	t.Helper()
	s := newServer(Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil))}, "test")
	ctx := context.WithValue(t.Context(), peerKey{}, peer{uid: 0})
	w := httptest.NewRecorder()
	s.identify(s.mux).ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/openapi.json", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return s, w.Body.Bytes()
}

func TestOpenAPIDocumentIsValid(t *testing.T) {
	_, text := document(t)
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Errorf("its version is %s", doc.OpenAPI)
	}
	if err := doc.Validate(t.Context(), openapi3.EnableMultiError()); err != nil {
		t.Error(err)
	}
}

// TestEveryRouteIsDocumented compares what is served with what the document
// says, in both directions.
func TestEveryRouteIsDocumented(t *testing.T) {
	s, text := document(t)
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                     `json:"operationId"`
			Summary     string                     `json:"summary"`
			Responses   map[string]json.RawMessage `json:"responses"`
			Parameters  []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	var documented []string
	ids := make(map[string]bool)
	for path, methods := range doc.Paths {
		for method, o := range methods {
			name := strings.ToUpper(method) + " " + path
			documented = append(documented, name)
			if o.OperationID == "" || ids[o.OperationID] || o.Summary == "" || len(o.Responses) == 0 {
				t.Errorf("%s: id %q, summary %q, %d responses", name, o.OperationID, o.Summary, len(o.Responses))
			}
			ids[o.OperationID] = true
			for part := range strings.SplitSeq(path, "/") {
				want, ok := strings.CutPrefix(strings.TrimSuffix(part, "}"), "{")
				if ok && !slices.ContainsFunc(o.Parameters, func(p struct{ Name, In string }) bool { return p.In == "path" && p.Name == want }) {
					t.Errorf("%s does not describe {%s}", name, want)
				}
			}
		}
	}
	var served []string
	for _, p := range s.mux.patterns {
		if p != "/" && !strings.Contains(p, "/v1/openapi") {
			served = append(served, p)
		}
	}
	slices.Sort(documented)
	slices.Sort(served)
	if !slices.Equal(documented, served) {
		t.Errorf("documented:\n%s\nserved:\n%s", strings.Join(documented, "\n"), strings.Join(served, "\n"))
	}
}
