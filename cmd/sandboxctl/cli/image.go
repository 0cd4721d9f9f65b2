package cli

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/dustin/go-humanize"
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
	with := &cli.StringSliceFlag{
		Name:  "with",
		Usage: "add what the overlay recipe in `FILE` says (may be given more than once)",
	}
	return verb(&cli.Command{
		Name:        "image",
		Usage:       "build, verify and describe the image that sandboxes boot from",
		Description: "These verbs work on this host's files and need no daemon.",
		Subcommands: []*cli.Command{
			verb(&cli.Command{
				Name:      "build",
				Usage:     "build the image, unless the one of this version's recipe is there",
				ArgsUsage: " ",
				Description: "It takes a few minutes and needs root. The image of an unchanged recipe is not built again.\n" +
					"An overlay recipe has the keys of the image's own recipe, all optional; a list of packages is enough.\n" +
					"To boot from an image with an overlay, name its path as `image` in the daemon's configuration.\n\n" + examples(
					`sandboxctl image build`, `sandboxctl image build --with studio.toml`,
					`sandboxctl image build --mirror http://mirror.example/debian`),
				Flags: []cli.Flag{
					cacheDir, jsonFlag(), with,
					&cli.StringFlag{Name: "mirror", Usage: "take packages from the Debian archive at `URL`"},
					&cli.BoolFlag{Name: "force", Usage: "build it again", DisableDefaultText: true},
				},
				Action: imageBuild,
			}),
			verb(&cli.Command{
				Name:        "verify",
				Usage:       "read a whole image and compare it with its manifest",
				ArgsUsage:   "[PATH]",
				Description: examples(`sandboxctl image verify`),
				Flags:       []cli.Flag{cacheDir, jsonFlag()},
				Action:      imageVerify,
			}),
			verb(&cli.Command{
				Name:      "info",
				Usage:     "show what is in an image",
				ArgsUsage: "[PATH]",
				Description: examples(`sandboxctl image info`, `sandboxctl image info --with studio.toml`,
					`sandboxctl image info --json | jq .manifest.tools`),
				Flags:  []cli.Flag{cacheDir, jsonFlag(), with},
				Action: imageInfo,
			}),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("there is no verb %q: see `sandboxctl image --help`", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	})
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
		return usagef("image build takes no argument, but got %q", c.Args().First())
	}
	dir, err := rootfs.CacheDir(c.String("cache-dir"))
	if err != nil {
		return err
	}
	recipe, err := imageRecipe(c)
	if err != nil {
		return err
	}
	builder := rootfs.Builder{
		Recipe:   recipe,
		CacheDir: dir,
		Mirror:   c.String("mirror"),
		Force:    c.Bool("force"),
		Progress: c.App.ErrWriter,
	}
	result, err := builder.Build(c.Context)
	if err != nil {
		return err
	}
	if wantJSON(c) {
		return printJSON(c, imageReport{
			Type: "image", Path: result.Image.Path, Built: &result.Built,
			Seconds: result.Took.Seconds(), Manifest: result.Image.Manifest,
		})
	}
	what := "is up to date"
	if result.Built {
		what = "built in " + result.Took.Round(time.Second).String()
	}
	_, err = fmt.Fprintf(c.App.Writer, "image %s\n%s\n", what, result.Image.Path)
	if err == nil && len(c.StringSlice("with")) > 0 {
		_, err = fmt.Fprintf(c.App.Writer, "to boot from it, put this into the daemon's configuration: image = %q\n", result.Image.Path)
	}
	return err
}

// imageRecipe is this version's recipe with the overlays of --with.
func imageRecipe(c *cli.Context) (*rootfs.Recipe, error) {
	recipe, err := rootfs.Default()
	if err != nil {
		return nil, err
	}
	for _, file := range c.StringSlice("with") {
		if recipe, err = recipe.With(file); err != nil {
			return nil, err
		}
	}
	return recipe, nil
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
	if wantJSON(c) {
		return printJSON(c, imageReport{
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
	if wantJSON(c) {
		return printJSON(c, imageReport{Type: "image", Path: image.Path, Manifest: image.Manifest})
	}
	return printImageInfo(c, image)
}

// imagePath is the PATH argument, else the image of this version's recipe.
func imagePath(c *cli.Context) (string, error) {
	if c.NArg() > 1 {
		return "", usagef("image %s takes one path, but got %d", c.Command.Name, c.NArg())
	}
	if c.NArg() == 1 {
		return c.Args().First(), nil
	}
	dir, err := rootfs.CacheDir(c.String("cache-dir"))
	if err != nil {
		return "", err
	}
	recipe, err := imageRecipe(c)
	if err != nil {
		return "", err
	}
	image, err := rootfs.LocateRecipe(dir, recipe)
	if err != nil {
		return "", err
	}
	return image.Path, nil
}

// printImageInfo shows what an image is made of, for people.
func printImageInfo(c *cli.Context, image rootfs.Image) error {
	m := image.Manifest
	t := newTable(c.App.Writer)
	t.row("path", image.Path)
	t.row("size", humanize.IBytes(uint64(m.Image.Size)))
	t.row("sha256", m.Image.SHA256)
	t.row("recipe", m.RecipeDigest)
	t.row("suite", m.Suite+" "+m.Architecture)
	t.row("packages", fmt.Sprintf("%d of Debian, %d of npm", len(m.Packages), len(m.Modules)))
	t.row("materials", filepath.Join(image.Dir(), rootfs.SBOMFile)+" (SPDX 2.3)")
	for _, name := range slices.Sorted(maps.Keys(m.Tools)) {
		t.row(name, m.Tools[name])
	}
	return t.flush()
}
