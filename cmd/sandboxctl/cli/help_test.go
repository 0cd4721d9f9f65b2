package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestEveryVerbExplainsItself reads each verb's --help: it says how the verb is
// used, and gives an example.
func TestEveryVerbExplainsItself(t *testing.T) {
	var walk func(path []string, verbs []*cli.Command)
	walk = func(path []string, verbs []*cli.Command) {
		for _, v := range verbs {
			words := append(path[:len(path):len(path)], v.Name)
			name := strings.Join(words, " ")
			var out, errs bytes.Buffer
			if code := Main(append(words, "--help"), strings.NewReader(""), &out, &errs); code != 0 || errs.Len() > 0 {
				t.Errorf("%s --help: exit code %d, %s", name, code, errs.String())
			}
			text := out.String()
			for _, want := range []string{name + " - " + v.Usage, "USAGE:\n   " + name} {
				if !strings.Contains(text, want) {
					t.Errorf("%s --help lacks %q:\n%s", name, want, text)
				}
			}
			if len(v.Subcommands) == 0 && !strings.Contains(text, "      "+name) {
				t.Errorf("%s --help has no example:\n%s", name, text)
			}
			for line := range strings.Lines(text) {
				if width := len([]rune(strings.TrimRight(line, "\n"))); width > 150 {
					t.Errorf("%s --help has a line of %d letters: %s", name, width, line)
				}
			}
			walk(words, v.Subcommands)
		}
	}
	walk([]string{"sandboxctl"}, newApp(nil, nil, nil).Commands)
}
