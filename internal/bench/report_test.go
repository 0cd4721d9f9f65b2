package main

import (
	"slices"
	"strings"
	"testing"
)

func TestVerdicts(t *testing.T) {
	r := row{
		what: "a thing", unit: "ms", subject: sample{10, 10, 10}, against: "another", base: sample{40, 40, 40},
		targets: []target{atMost("p50", 10), atMost("p95", 8), atMost("ratio", 0.2)},
	}
	targets, verdicts := r.verdicts()
	if want := "p50 ≤ 10.0 ms; p95 ≤ 8.00 ms; ratio ≤ 0.20 ×"; targets != want {
		t.Errorf("targets: %s, want %s", targets, want)
	}
	if want := "met; **missed** by 2.00 ms (25 %); **missed** by 0.05 × (25 %)"; verdicts != want {
		t.Errorf("verdicts: %s, want %s", verdicts, want)
	}
}

func TestReportIsATable(t *testing.T) {
	var text strings.Builder
	report{
		samples: 30, partial: true, versions: []string{"one | two"},
		rows:     []row{{what: "a | b", unit: "MB", subject: sample{1}}, {what: "c", unit: "ms", subject: sample{2}, against: "d", base: sample{1}, targets: []target{atMost("ratio", 1)}}},
		findings: []string{"it was so"},
		details:  []detail{{title: "More", head: []string{"x"}, rows: [][]string{{"y"}}, note: "A note."}},
	}.print(&text)
	for _, want := range []string{
		"some sections only", "| a \\| b, MB | 1 | 1.00 |", "reported", "- c: d.", "0 of 1 targets are met", "- it was so", "### More", "| y |", "A note.",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
	lines := slices.Collect(strings.Lines(text.String()))
	for i, l := range lines {
		if strings.HasPrefix(l, "| ---") && strings.Count(l, "|") != strings.Count(lines[i-1], "|") {
			t.Errorf("a table's rule does not fit its head:\n%s%s", lines[i-1], l)
		}
	}
}

func TestBareFlags(t *testing.T) {
	got, err := bareFlags([]string{
		"runsc-sandbox", "--platform=systrap", "--network=sandbox", "--root=/r", "--log=/l", "--overlay2=root:dir=/o", "--log-fd=3", "--host-uds=open", "boot", "--bundle=/b",
	})
	if want := []string{"--network=none", "--ignore-cgroups", "--platform=systrap", "--host-uds=open"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("flags %q, %v; want %q", got, err, want)
	}
	if _, err := bareFlags([]string{"sleep", "1"}); err == nil {
		t.Error("what is no sentry was taken for one")
	}
}

func TestUsage(t *testing.T) {
	var out strings.Builder
	for _, args := range [][]string{{"-samples", "29"}, {"extra"}, {"-only", "("}, {"-unknown"}} {
		if _, err := parse(args, &out); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
	o, err := parse(nil, &out)
	if err != nil || o.samples != minSamples || !o.only.MatchString("idle") {
		t.Errorf("the defaults are %+v, %v", o, err)
	}
}
