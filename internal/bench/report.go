package main

import (
	"fmt"
	"io"
	"strings"
)

// target is what a figure must not exceed.
type target struct {
	of    string // p50, p95, max, mean or ratio
	limit float64
}

func atMost(of string, limit float64) target { return target{of, limit} }

// row is one line of the table.
type row struct {
	what, unit string
	subject    sample
	// against says what base is; empty when there is none.
	against string
	base    sample
	targets []target
}

// add takes a row into the report, and shows it at once.
func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	fmt.Fprintf(b.log, "\n  %s", strings.Join(r.cells(), " | "))
}

// ratio compares the medians.
func (r row) ratio() float64 { return r.subject.p50() / r.base.p50() }

func (r row) value(of string) float64 {
	switch of {
	case "p50":
		return r.subject.p50()
	case "p95":
		return r.subject.p95()
	case "max":
		return r.subject.quantile(1)
	case "mean":
		return r.subject.mean()
	case "ratio":
		return r.ratio()
	}
	panic("bench: a target of " + of) // never: atMost's callers are in this program
}

// unitOf is how a target's figure is written.
func (r row) unitOf(of string) string {
	if of == "ratio" {
		return "×"
	}
	return r.unit
}

// verdicts returns the targets, and for each whether it is met or by how much
// it is not.
func (r row) verdicts() (targets, verdicts string) {
	if len(r.targets) == 0 {
		return "reported", ""
	}
	var want, got []string
	for _, t := range r.targets {
		value, unit := r.value(t.of), r.unitOf(t.of)
		want = append(want, fmt.Sprintf("%s ≤ %s %s", t.of, number(t.limit), unit))
		if value <= t.limit {
			got = append(got, "met")
			continue
		}
		got = append(got, fmt.Sprintf("**missed** by %s %s (%.0f %%)", number(value-t.limit), unit, 100*(value/t.limit-1)))
	}
	return strings.Join(want, "; "), strings.Join(got, "; ")
}

// cells are the row as the table shows it.
func (r row) cells() []string {
	targets, verdicts := r.verdicts()
	base, ratio := "–", "–"
	if len(r.base) > 0 {
		base = fmt.Sprintf("%s (%s)", number(r.base.p50()), r.base.spread())
		ratio = number(r.ratio()) + " ×"
	}
	return []string{
		r.what + ", " + r.unit, fmt.Sprint(len(r.subject)), number(r.subject.p50()), number(r.subject.p95()), r.subject.spread(),
		base, ratio, targets, verdicts,
	}
}

// detail is a smaller table.
type detail struct {
	title string
	head  []string
	rows  [][]string
	note  string
}

// report is the whole page.
type report struct {
	samples       int
	partial       bool
	before, after hostFacts
	versions      []string
	rows          []row
	details       []detail
	findings      []string
}

func (p report) print(w io.Writer) {
	line := func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
	line("# Speed and size, measured\n")
	line("Written by `make bench` (internal/bench); do not edit. Every figure is of one run on one machine, at least %d samples", p.samples)
	line("each. A sample of the product and one of its baseline were taken by turns, so that the machine's noise met both.")
	if p.partial {
		line("\n**This run was of some sections only.**")
	}
	line("\n- %s", p.before.when.Format("2006-01-02 15:04 MST"))
	line("- %d cores (%s), %s GB of memory, Linux %s", p.before.cores, p.before.model, number(p.before.memory/1e9), p.before.kernel)
	line("- load average %s at the start, %s at the end; the run took %s",
		p.before.load, p.after.load, p.after.when.Sub(p.before.when).Round(1e9))
	for _, v := range p.versions {
		line("- %s", v)
	}
	line("")
	printTable(w, []string{"what", "n", "p50", "p95", "p25–p75", "baseline p50 (p25–p75)", "ratio of p50", "target", ""}, p.cells())
	p.printBaselines(line)
	line("\n## What the figures say\n")
	for _, f := range append(p.misses(), p.findings...) {
		line("- %s", f)
	}
	for _, d := range p.details {
		line("\n### %s\n", d.title)
		printTable(w, d.head, d.rows)
		if d.note != "" {
			line("\n%s", d.note)
		}
	}
}

func (p report) cells() [][]string {
	var all [][]string
	for _, r := range p.rows {
		all = append(all, r.cells())
	}
	return all
}

// printBaselines says what each row was compared with.
func (p report) printBaselines(line func(string, ...any)) {
	line("\nBaselines:\n")
	for _, r := range p.rows {
		if r.against != "" {
			line("- %s: %s.", r.what, r.against)
		}
	}
	line("\nBare runsc is the same binary with the same flags and the same image, but for `--network=none` and " +
		"`--ignore-cgroups`, and with one shared directory: it has less to do. The chroot has the image's environment, " +
		"and so its allocator settings too. Times of the product are a caller's, from the API call to the answer that says how the command ended.")
}

// misses sums up what is not reached, or that all is.
func (p report) misses() []string {
	missed, all := 0, 0
	var names []string
	for _, r := range p.rows {
		for _, t := range r.targets {
			all++
			if v := r.value(t.of); v > t.limit {
				missed++
				names = append(names, fmt.Sprintf("%s: %s is %s %s, the target %s", r.what, t.of, number(v), r.unitOf(t.of), number(t.limit)))
			}
		}
	}
	return append([]string{fmt.Sprintf("%d of %d targets are met.", all-missed, all)}, names...)
}

func printTable(w io.Writer, head []string, rows [][]string) {
	printRow(w, head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
	}
	printRow(w, rule)
	for _, r := range rows {
		printRow(w, r)
	}
}

func printRow(w io.Writer, cells []string) {
	escaped := make([]string, len(cells))
	for i, c := range cells {
		escaped[i] = strings.ReplaceAll(c, "|", "\\|")
	}
	fmt.Fprintf(w, "| %s |\n", strings.Join(escaped, " | "))
}
