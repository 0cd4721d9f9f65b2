package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"mediasandbox/rootfs"
)

// imageCommand builds, verifies and describes the image that sandboxes boot
// from. Its verbs work on this host's files and need no daemon.
func imageCommand() *cli.Command {
	cacheDir := &cli.StringFlag{
		Name:  "cache-dir",
		Usage: "keep images in `DIR` (default: $" + rootfs.CacheEnv + ", else the system's cache)",
	}
	asJSON := &cli.BoolFlag{Name: "json", Usage: "print one JSON object"}
	return &cli.Command{
		Name:  "image",
		Usage: "build, verify and describe the image that sandboxes boot from",
		Subcommands: []*cli.Command{
			{
				Name:      "build",
				Usage:     "build the image, unless the one of this version's recipe is there",
				ArgsUsage: " ",
				Flags: []cli.Flag{
					cacheDir, asJSON,
					&cli.StringFlag{Name: "mirror", Usage: "take packages from the Debian archive at `URL`"},
					&cli.BoolFlag{Name: "force", Usage: "build it again"},
				},
				Action: imageBuild,
			},
			{
				Name:      "verify",
				Usage:     "read a whole image and compare it with its manifest",
				ArgsUsage: "[PATH]",
				Flags:     []cli.Flag{cacheDir, asJSON},
				Action:    imageVerify,
			},
			{
				Name:      "info",
				Usage:     "show what is in an image",
				ArgsUsage: "[PATH]",
				Flags:     []cli.Flag{cacheDir, asJSON},
				Action:    imageInfo,
			},
		},
	}
}

// imageReport is what the image verbs print with --json.
type imageReport struct {
	Type     string `json:"type"`
	Path     string `json:"path"`
	Verified bool   `json:"verified,omitempty"`
	Built    *bool  `json:"built,omitempty"`
	// Seconds is how long building or looking took.
	Seconds  float64         `json:"seconds,omitempty"`
	Manifest rootfs.Manifest `json:"manifest"`
}

func imageBuild(c *cli.Context) error {
	if c.Args().Present() {
		return cli.Exit(fmt.Sprintf("image build takes no argument, but got %q", c.Args().First()), 2)
	}
	dir, err := rootfs.CacheDir(c.String("cache-dir"))
	if err != nil {
		return err
	}
	builder := rootfs.Builder{
		CacheDir: dir,
		Mirror:   c.String("mirror"),
		Force:    c.Bool("force"),
		Progress: c.App.ErrWriter,
	}
	result, err := builder.Build(c.Context)
	if err != nil {
		return err
	}
	if imageJSON(c) {
		return printImageJSON(c.App.Writer, imageReport{
			Type: "image", Path: result.Image.Path, Built: &result.Built,
			Seconds: result.Took.Seconds(), Manifest: result.Image.Manifest,
		})
	}
	what := "is up to date"
	if result.Built {
		what = "built in " + result.Took.Round(time.Second).String()
	}
	_, err = fmt.Fprintf(c.App.Writer, "image %s\n%s\n", what, result.Image.Path)
	return err
}

func imageVerify(c *cli.Context) error {
	path, err := imagePath(c)
	if err != nil {
		return err
	}
	image, err := rootfs.Verify(c.Context, path)
	if err != nil {
		return err
	}
	if imageJSON(c) {
		return printImageJSON(c.App.Writer, imageReport{
			Type: "image", Path: image.Path, Verified: true, Manifest: image.Manifest,
		})
	}
	_, err = fmt.Fprintf(c.App.Writer, "image %s is as built: %d bytes, SHA-256 %s\n",
		image.Path, image.Manifest.Image.Size, image.Manifest.Image.SHA256)
	return err
}

func imageInfo(c *cli.Context) error {
	path, err := imagePath(c)
	if err != nil {
		return err
	}
	image, err := rootfs.Open(path)
	if err != nil {
		return err
	}
	if imageJSON(c) {
		return printImageJSON(c.App.Writer, imageReport{Type: "image", Path: image.Path, Manifest: image.Manifest})
	}
	return printImageInfo(c.App.Writer, image)
}

// imagePath is the PATH argument, else the image of this version's recipe.
func imagePath(c *cli.Context) (string, error) {
	if c.NArg() > 1 {
		return "", cli.Exit(fmt.Sprintf("image %s takes one path, but got %d", c.Command.Name, c.NArg()), 2)
	}
	if c.NArg() == 1 {
		return c.Args().First(), nil
	}
	dir, err := rootfs.CacheDir(c.String("cache-dir"))
	if err != nil {
		return "", err
	}
	image, err := rootfs.Locate(dir)
	if err != nil {
		return "", err
	}
	return image.Path, nil
}

// imageJSON says whether --json was given, here or before the verb.
func imageJSON(c *cli.Context) bool {
	return slices.ContainsFunc(c.Lineage(), func(c *cli.Context) bool { return c.Bool("json") })
}

func printImageJSON(w io.Writer, report imageReport) error {
	return json.NewEncoder(w).Encode(report)
}

func printImageInfo(w io.Writer, image rootfs.Image) error {
	m := image.Manifest
	lines := [][2]string{
		{"path", image.Path},
		{"size", fmt.Sprintf("%.0f MB", float64(m.Image.Size)/1e6)},
		{"sha256", m.Image.SHA256},
		{"recipe", m.RecipeDigest},
		{"suite", m.Suite + " " + m.Architecture},
		{"packages", fmt.Sprint(len(m.Packages))},
	}
	var tools []string
	for name := range m.Tools {
		tools = append(tools, name)
	}
	slices.Sort(tools)
	for _, name := range tools {
		lines = append(lines, [2]string{name, m.Tools[name]})
	}
	for _, line := range lines {
		if _, err := fmt.Fprintf(w, "%-12s %s\n", line[0], line[1]); err != nil {
			return err
		}
	}
	return nil
}
