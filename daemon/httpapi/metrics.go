package httpapi

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"mediasandbox/daemon/api"
)

// routeMetrics serves what the daemon counts. It tells of all accounts
// together, and so is for operators.
func (s *server) routeMetrics() {
	o := op("metrics", http.MethodGet, "/metrics", "What the daemon counts, in Prometheus's text format; for operators")
	o.Responses = map[string]*huma.Response{"200": {
		Description: "OK", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}}
	s.api.OpenAPI().AddOperation(&o)
	s.mux.HandleFunc(o.Method+" "+o.Path, func(w http.ResponseWriter, r *http.Request) {
		if !callerOf(r.Context()).operator {
			s.fail(w, r, api.Errorf(api.CodeForbidden, "the metrics are for operators: they tell of all accounts").
				WithHint("an operator is named in the configuration's [access] section"))
			return
		}
		if err := s.cfg.Metrics(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}
