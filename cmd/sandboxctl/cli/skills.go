package cli

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"mediasandbox/daemon/api"
	"mediasandbox/skills"
)

func skillsCommand() *cli.Command {
	simple := func(name, usage, args, example string, action cli.ActionFunc) *cli.Command {
		return verb(&cli.Command{
			Name: name, Usage: usage, ArgsUsage: args, Description: examples(example), Flags: []cli.Flag{jsonFlag()}, Action: action,
		})
	}
	return verb(&cli.Command{
		Name: "skills", Usage: "list, show, validate, import and activate skills", ArgsUsage: " ",
		Description: "A skill is a folder in the Agent Skills format: a SKILL.md that says how a kind of work is done, with\n" +
			"references, assets and scripts. A chat has its active skills under /skills in its sandboxes, read-only.\n\n" + examples(
			`sandboxctl skills list`, `sandboxctl skills validate ./grade`, `sandboxctl skills import ./grade`,
			`sandboxctl skills use --chat spring grade video-compositing`),
		Flags:  []cli.Flag{jsonFlag()},
		Action: listSkills,
		Subcommands: []*cli.Command{
			simple("list", "list the skills that your chats may have", " ", `sandboxctl skills list`, listSkills),
			simple("show", "print a skill's SKILL.md", "NAME", `sandboxctl skills show photo-editing`, showSkill),
			simple("validate", "judge a skill's folder; needs no daemon", "DIR", `sandboxctl skills validate ./grade`, validateSkill),
			simple("import", "import a skill's folder, or replace your skill of that name", "DIR", `sandboxctl skills import ./grade`, importSkill),
			simple("rm", "remove a skill of yours", "NAME", `sandboxctl skills rm grade`, removeSkill),
			verb(&cli.Command{
				Name: "use", Usage: "say which skills a chat has", ArgsUsage: "[NAME...]",
				Description: "It takes effect at once, also in the chat's live sandbox. A chat begins with the built-in skills.\n\n" + examples(
					`sandboxctl skills use grade photo-editing`, `sandboxctl skills use --none`, `sandboxctl skills use --default`),
				Flags: []cli.Flag{
					chatFlag(), jsonFlag(),
					&cli.BoolFlag{Name: "none", Usage: "the chat has no skill", DisableDefaultText: true},
					&cli.BoolFlag{Name: "default", Usage: "the chat has the built-in skills", DisableDefaultText: true},
				},
				Action: useSkills,
			}),
		},
	})
}

func listSkills(c *cli.Context) error {
	if c.Args().Present() {
		return usagef("there is no verb %q: see `sandboxctl skills --help`", c.Args().First())
	}
	all, err := connect(c).Skills(c.Context)
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printList(c, all)
	}
	t := newTable(c.App.Writer, "NAME", "FROM", "DESCRIPTION")
	for _, s := range all {
		from := "you"
		if s.Builtin {
			from = "built in"
		}
		sentence, _, _ := strings.Cut(s.Description, ". ")
		t.row(s.Name, from, printable(strings.TrimSuffix(sentence, ".")))
	}
	return t.flush()
}

func showSkill(c *cli.Context) error {
	name, err := argument(c, "skill")
	if err != nil {
		return err
	}
	skill, err := connect(c).Skill(c.Context, name)
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printJSON(c, skill)
	}
	_, err = fmt.Fprint(c.App.Writer, skill.Text)
	return err
}

// skillFolder opens the folder of an argument; its name is the skill's.
func skillFolder(c *cli.Context) (string, fs.FS, error) {
	dir, err := argument(c, "folder")
	if err != nil {
		return "", nil, err
	}
	whole, err := filepath.Abs(dir)
	if err != nil {
		return "", nil, fmt.Errorf("find %s: %w", dir, err)
	}
	info, err := os.Stat(whole)
	if err != nil {
		return "", nil, usagef("%v", err)
	}
	if !info.IsDir() {
		return "", nil, usagef("%s is not a folder", dir)
	}
	return filepath.Base(whole), os.DirFS(whole), nil
}

// skillReport is what validate prints with --json.
type skillReport struct {
	Type     string          `json:"type"`
	Name     string          `json:"name"`
	Valid    bool            `json:"valid"`
	Problems skills.Problems `json:"problems"`
}

func validateSkill(c *cli.Context) error {
	name, folder, err := skillFolder(c)
	if err != nil {
		return err
	}
	skill, problems := skills.Validate(folder, name)
	if wantJSON(c) {
		if problems == nil {
			problems = skills.Problems{}
		}
		if err := printJSON(c, skillReport{Type: "skill", Name: name, Valid: len(problems) == 0, Problems: problems}); err != nil {
			return err
		}
	}
	if len(problems) > 0 {
		return notValid(name, problems)
	}
	if wantJSON(c) {
		return nil
	}
	_, err = fmt.Fprintf(c.App.Writer, "skill %s is valid: %d files, %d bytes\n", skill.Name, len(skill.Files), skill.Size)
	return err
}

// notValid is the caller's error, not the product's.
func notValid(name string, problems skills.Problems) error {
	return usagef("skill %q is not valid:\n%v", name, problems)
}

func importSkill(c *cli.Context) error {
	name, folder, err := skillFolder(c)
	if err != nil {
		return err
	}
	// Judged here first: a folder that is not a skill need not travel.
	if _, problems := skills.Validate(folder, name); len(problems) > 0 {
		return notValid(name, problems)
	}
	var archive bytes.Buffer
	if err := skills.Pack(&archive, folder); err != nil {
		return err
	}
	skill, err := connect(c).ImportSkill(c.Context, name, &archive)
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printJSON(c, skill)
	}
	_, err = fmt.Fprintf(c.App.Writer, "skill %s is imported: %d files\n", skill.Name, len(skill.Files))
	return err
}

func removeSkill(c *cli.Context) error {
	name, err := argument(c, "skill")
	if err != nil {
		return err
	}
	return connect(c).RemoveSkill(c.Context, name)
}

func useSkills(c *cli.Context) error {
	names := c.Args().Slice()
	given := 0
	for _, one := range []bool{len(names) > 0, c.Bool("none"), c.Bool("default")} {
		if one {
			given++
		}
	}
	if given != 1 {
		return usagef("name skills, or give --none or --default: see `sandboxctl skills use --help`")
	}
	switch {
	case c.Bool("default"):
		names = nil
	case c.Bool("none"):
		names = []string{}
	}
	chat, err := connect(c).SetSkills(c.Context, c.String("chat"), names)
	if err != nil {
		return err
	}
	return reportSkills(c, chat)
}

func reportSkills(c *cli.Context, chat api.Chat) error {
	if wantJSON(c) {
		return printJSON(c, chat)
	}
	what := "no skill"
	if len(chat.Skills) > 0 {
		what = strings.Join(chat.Skills, ", ")
	}
	_, err := fmt.Fprintf(c.App.Writer, "chat %s has %s\n", chat.ID, what)
	return err
}
