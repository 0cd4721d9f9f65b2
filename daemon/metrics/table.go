package metrics

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Table lists the product's own metrics for its documentation, in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| metric | type | labels | |\n|---|---|---|---|\n")
	for _, s := range list {
		kind := "gauge"
		if s.kind == prometheus.CounterValue {
			kind = "counter"
		}
		var labels []string
		for _, l := range s.labels {
			labels = append(labels, "`"+l+"`")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.name, kind, strings.Join(labels, ", "), s.help)
	}
	return b.String()
}
