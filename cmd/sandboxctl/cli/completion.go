package cli

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/client"
)

// completeVerb is how a shell asks for what may come next: the words so far, the
// last of them unfinished, maybe empty.
const completeVerb = "__complete"

// completeFiles is the answer that leaves a word to the shell, as a file's name.
const completeFiles = ":files"

// completePatience is how long a Tab waits for the daemon.
const completePatience = 2 * time.Second

//go:embed completion.bash
var bashCompletion string

func completionCommand() *cli.Command {
	return verb(&cli.Command{
		Name: "completion", Usage: "print the code with which a shell completes verbs, flags, chats, cells and commands", ArgsUsage: "bash",
		Description: "The package installs it. Without the package, run `source <(sandboxctl completion bash)`, or keep it.\n\n" +
			examples(`sandboxctl completion bash >/etc/bash_completion.d/sandboxctl`),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 || c.Args().First() != "bash" {
				return usagef("completion takes the name of a shell: bash")
			}
			_, err := io.WriteString(c.App.Writer, bashCompletion)
			return err
		},
	})
}

// completion is a command line that is being typed.
type completion struct {
	app   *cli.App
	verb  *cli.Command // nil before the first
	words []string     // before the last
	last  string
	args  int // arguments of the verb so far
	flag  string
	own   bool // whether the sandbox's command has begun
	// given are the values of flags so far.
	given map[string]string
}

// complete prints what may stand for the last word, a line each. It never
// fails: a Tab that finds nothing is no reason to speak.
func complete(app *cli.App, words []string, stdout io.Writer) {
	if len(words) == 0 {
		return
	}
	c := &completion{app: app, words: words[:len(words)-1], last: words[len(words)-1], given: map[string]string{}}
	c.read()
	for _, s := range c.candidates() {
		if s == completeFiles || strings.HasPrefix(s, c.last) {
			fmt.Fprintln(stdout, s)
		}
	}
}

// read finds the verb, the flags' values, and whether a flag waits for one.
func (c *completion) read() {
	for i := 0; i < len(c.words); i++ {
		w := c.words[i]
		if w == "--" {
			c.own = true
			return
		}
		if strings.HasPrefix(w, "-") && w != "-" {
			name, value, joined := strings.Cut(strings.TrimLeft(w, "-"), "=")
			f := flagNamed(c.flags(), name)
			if doc, ok := f.(cli.DocGenerationFlag); ok && doc.TakesValue() && !joined {
				if i++; i == len(c.words) {
					c.flag = f.Names()[0]
					return
				}
				value = c.words[i]
			}
			if f != nil {
				c.given[f.Names()[0]] = value
			}
			continue
		}
		if v := find(c.verbs(), w); v != nil {
			c.verb = v
			continue
		}
		c.args++
		if c.verb != nil && c.verb.Name == "run" { // what follows is the command's
			c.own = true
			return
		}
	}
}

func (c *completion) verbs() []*cli.Command {
	if c.verb == nil {
		return c.app.Commands
	}
	return c.verb.Subcommands
}

func (c *completion) flags() []cli.Flag {
	if c.verb == nil {
		return c.app.Flags
	}
	return append(slices.Clone(c.verb.Flags), c.app.Flags...)
}

func (c *completion) candidates() []string {
	switch {
	case c.own:
		return []string{completeFiles}
	case c.flag != "":
		return c.values(c.flag)
	case strings.HasPrefix(c.last, "-"):
		var names []string
		for _, f := range c.flags() {
			names = append(names, "--"+f.Names()[0])
		}
		return append(names, "--help")
	case len(c.verbs()) > 0:
		var names []string
		for _, v := range c.verbs() {
			names = append(names, v.Name)
		}
		return names
	}
	return c.arguments()
}

// values are those of a flag.
func (c *completion) values(flag string) []string {
	switch flag {
	case "chat":
		return c.chats()
	case "in":
		return append(c.ordinals(), completeFiles)
	case "kind", "pill":
		var pills []string
		for _, p := range api.Pills() {
			pills = append(pills, string(p))
		}
		return pills
	case "net", "network", "mode":
		return []string{"public", "allowlist", "none"}
	}
	return []string{completeFiles}
}

// arguments are those of the verb, by what its help calls them.
func (c *completion) arguments() []string {
	usage := strings.Fields(c.verb.ArgsUsage)
	if len(usage) == 0 {
		return nil
	}
	switch word := strings.Trim(usage[min(c.args, len(usage)-1)], "[]()'"); {
	case strings.HasPrefix(word, "#N"):
		return append(c.ordinals(), completeFiles)
	case word == "COMMAND":
		return c.commands()
	case word == "CHAT", word == "ID" && c.verb.Name != "new":
		return c.chats()
	case strings.HasPrefix(word, "NAME"):
		return c.skills()
	}
	return []string{completeFiles}
}

// ask reads a list of the daemon's; what can't be read is an empty one.
func ask[T any](c *completion, list func(context.Context, *client.Client, string) ([]T, error), name func(T) string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), completePatience)
	defer cancel()
	chat := cmp.Or(c.given["chat"], os.Getenv(chatEnv), api.DefaultChat)
	found, err := list(ctx, client.New(c.given["socket"], c.given["account"]), chat)
	if err != nil {
		return nil
	}
	names := make([]string, len(found))
	for i, v := range found {
		names[i] = name(v)
	}
	return names
}

func (c *completion) chats() []string {
	return ask(c, func(ctx context.Context, cl *client.Client, _ string) ([]api.Chat, error) { return cl.Chats(ctx) },
		func(chat api.Chat) string { return chat.ID })
}

func (c *completion) ordinals() []string {
	return ask(c, func(ctx context.Context, cl *client.Client, chat string) ([]api.Cell, error) {
		return cl.Cells(ctx, chat)
	},
		func(cell api.Cell) string { return "#" + strconv.Itoa(cell.Ordinal) })
}

func (c *completion) commands() []string {
	return ask(c, func(ctx context.Context, cl *client.Client, chat string) ([]api.Command, error) {
		return cl.Commands(ctx, chat)
	},
		func(cmd api.Command) string { return cmd.ID })
}

func (c *completion) skills() []string {
	return ask(c, func(ctx context.Context, cl *client.Client, _ string) ([]api.Skill, error) { return cl.Skills(ctx) },
		func(s api.Skill) string { return s.Name })
}
