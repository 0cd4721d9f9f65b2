package cli

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// level is a verb of a command line, or the program itself.
type level struct {
	flags []cli.Flag
	words []string
}

// arrange moves flags to where the library looks for them: a flag counts
// wherever it stands, until "--". After the first argument of run everything
// is the command's.
func arrange(app *cli.App, args []string) []string {
	levels := []level{{app.Flags, args[:1:1]}}
	verbs := app.Commands
	var positional []string
	rest := args[1:]
	for len(rest) > 0 {
		arg := rest[0]
		if arg == "--" {
			positional = append(positional, rest[1:]...)
			break
		}
		if strings.HasPrefix(arg, "-") && arg != "-" {
			n := min(takeFlag(levels, arg, rest), len(rest))
			rest = rest[n:]
			continue
		}
		verb := find(verbs, arg)
		if verb == nil && len(verbs) > 0 || len(levels) > 1 && levels[1].words[0] == "run" {
			positional = append(positional, rest...)
			break
		}
		rest = rest[1:]
		if verb == nil {
			positional = append(positional, arg)
			continue
		}
		levels = append(levels, level{verb.Flags, []string{arg}})
		verbs = verb.Subcommands
	}
	var all []string
	for _, l := range levels {
		all = append(all, l.words...)
	}
	if len(positional) > 0 {
		all = append(append(all, "--"), positional...)
	}
	return all
}

// takeFlag gives the flag at the head of rest to the innermost verb that
// declares it, and returns how many words it is. One that nobody declares goes
// to the last verb, which then complains.
func takeFlag(levels []level, arg string, rest []string) int {
	name, _, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	at, words := len(levels)-1, 1
	for i := len(levels) - 1; i >= 0; i-- {
		if f := flagNamed(levels[i].flags, name); f != nil {
			at = i
			if doc, ok := f.(cli.DocGenerationFlag); ok && doc.TakesValue() && !joined {
				words = 2
			}
			break
		}
	}
	levels[at].words = append(levels[at].words, rest[:min(words, len(rest))]...)
	return words
}

func flagNamed(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				return f
			}
		}
	}
	return nil
}

func find(verbs []*cli.Command, name string) *cli.Command {
	for _, v := range verbs {
		if v.HasName(name) {
			return v
		}
	}
	return nil
}
