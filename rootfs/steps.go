package rootfs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
)

// steps makes the image in w.dir and publishes it.
func (w *work) steps(ctx context.Context) (Image, error) {
	root := filepath.Join(w.dir, "root")
	out := filepath.Join(w.dir, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		return Image{}, fmt.Errorf("make the build directory: %w", err)
	}
	// Whatever the caller's umask: the daemon's helpers read images too.
	if err := os.Chmod(out, 0o755); err != nil {
		return Image{}, fmt.Errorf("make the build directory: %w", err)
	}
	inside := inside{tree: root, recipe: w.recipe, log: w.log}
	var manifest Manifest
	for _, step := range []struct {
		name string
		run  func() error
	}{
		{"install packages", func() error { return w.install(ctx, root) }},
		{"prepare", func() error { return w.prepare(ctx, inside) }},
		{"check", func() error { return inside.check(ctx) }},
		{"list contents", func() (err error) { manifest, err = w.describe(ctx, inside); return err }},
		{"make the file system", func() error { return w.makeImage(ctx, root, filepath.Join(out, ImageFile)) }},
		{"publish", func() error { return w.finish(ctx, out, manifest) }},
	} {
		if err := w.progress.step(step.name, step.run); err != nil {
			return Image{}, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return LocateRecipe(w.CacheDir, w.recipe)
}

// install makes the image's tree and, at the same time, the helper tree that
// fetches what is not Debian's. When one fails the other ends too.
func (w *work) install(ctx context.Context, root string) error {
	if w.recipe.Fetch == nil {
		return w.bootstrap(ctx, root)
	}
	helper := filepath.Join(w.dir, "helper")
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() error { return w.bootstrap(ctx, root) })
	both.Go(func() error {
		started := w.progress.now()
		if err := w.fetch(ctx, helper); err != nil {
			return fmt.Errorf("%s: %w", w.recipe.Fetch.Name, err)
		}
		w.progress.note("      %s: fetched in %.1f s", w.recipe.Fetch.Name, w.progress.now().Sub(started).Seconds())
		return nil
	})
	if err := both.Wait(); err != nil {
		return err
	}
	return w.adopt(helper, root)
}

// bootstrap installs the recipe's packages into a new tree.
func (w *work) bootstrap(ctx context.Context, root string) error {
	return w.debootstrap(ctx, root, treePlan{
		variant: w.recipe.Variant, packages: w.recipe.Packages,
		exclude: w.recipe.Exclude, keep: w.recipe.Keep,
		log: &relay{log: w.log, out: w.progress.out, prefix: "I: "},
	})
}

// treePlan is what a tree of Debian packages is made of.
type treePlan struct {
	variant                 string
	packages, exclude, keep []string
	log                     io.Writer
}

// debootstrap makes a tree of Debian packages.
func (w *work) debootstrap(ctx context.Context, root string, plan treePlan) error {
	sources, err := w.mirrorLines()
	if err != nil {
		return err
	}
	argv := []string{
		"/bin/sh", "-c", `umask 022 && mount -t proc proc /proc && exec "$@"`, "sh",
		"mmdebstrap", "--mode=root", "--format=directory", "--variant=" + plan.variant,
		"--components=" + strings.Join(w.recipe.Components, ","),
		`--aptopt=APT::Install-Recommends "false"`,
		`--aptopt=Acquire::Languages "none"`,
		`--aptopt=Acquire::Retries "3"`,
	}
	for _, p := range plan.exclude {
		argv = append(argv, "--dpkgopt=path-exclude="+p)
	}
	for _, p := range plan.keep {
		argv = append(argv, "--dpkgopt=path-include="+p)
	}
	if len(plan.packages) > 0 {
		argv = append(argv, "--include="+strings.Join(plan.packages, ","))
	}
	argv = append(argv, w.recipe.Suite, root)
	argv = append(argv, sources...)
	return command{argv: argv, env: w.bootstrapEnviron(), log: plan.log}.run(ctx)
}

// bootstrapEnviron is what mmdebstrap runs with: nothing of the caller's but
// the way to its network.
func (w *work) bootstrapEnviron() []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8", "TZ=UTC", "DEBIAN_FRONTEND=noninteractive",
		"PYTHONHASHSEED=0", "TMPDIR=" + w.dir,
		"SOURCE_DATE_EPOCH=" + strconv.FormatInt(w.recipe.Mtime, 10),
	}
	for _, name := range []string{"http_proxy", "https_proxy", "no_proxy"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// mirrorLines returns the apt sources to name to mmdebstrap.
func (w *work) mirrorLines() ([]string, error) {
	m, err := hostMirrors("/")
	if err != nil {
		return nil, err
	}
	if w.Mirror != "" {
		if err := checkMirror(w.Mirror); err != nil {
			return nil, err
		}
		m.main = strings.TrimSuffix(w.Mirror, "/")
	}
	return m.lines(w.recipe), nil
}

// prepare turns an installed tree into the content of the image.
func (w *work) prepare(ctx context.Context, in inside) error {
	root, err := os.OpenRoot(in.tree)
	if err != nil {
		return fmt.Errorf("open the tree: %w", err)
	}
	defer root.Close()
	t := tree{root}
	if w.sources, err = t.writeSources(); err != nil {
		return err
	}
	if err := t.remove(w.recipe.Remove); err != nil {
		return err
	}
	if err := t.makeDirectories(w.recipe.Directories); err != nil {
		return err
	}
	if err := t.writeFiles(w.recipe.Files); err != nil {
		return err
	}
	for _, s := range w.recipe.Prepare {
		if err := in.run(ctx, insidePrepare, s.Run, nil); err != nil {
			return fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return w.tidy(t)
}

// tidy removes and normalises everything that differs between two builds.
func (w *work) tidy(t tree) error {
	if err := t.remove(volatile); err != nil {
		return err
	}
	// Some of what went are files that the recipe gives a content of its own.
	if err := t.writeFiles(w.recipe.Files); err != nil {
		return err
	}
	if err := t.fixShadow(w.recipe.Mtime); err != nil {
		return err
	}
	for _, name := range []string{"var/lib/dpkg/status", "var/lib/apt/extended_states"} {
		if err := t.sortStanzas(name); err != nil {
			return err
		}
	}
	return nil
}

// describe lists what is in the tree.
func (w *work) describe(ctx context.Context, in inside) (Manifest, error) {
	root, err := os.OpenRoot(in.tree)
	if err != nil {
		return Manifest{}, fmt.Errorf("open the tree: %w", err)
	}
	defer root.Close()
	m := Manifest{
		SchemaVersion: manifestSchema, RecipeDigest: w.recipe.Digest(), BuilderVersion: BuilderVersion,
		Mtime: w.recipe.Mtime, Suite: w.recipe.Suite, Architecture: runtime.GOARCH,
		Environment: w.recipe.Environment, Tools: make(map[string]string),
	}
	for _, s := range w.sources {
		m.Sources = append(m.Sources, s.String())
	}
	t := tree{root}
	if m.Packages, err = t.packages(); err != nil {
		return Manifest{}, err
	}
	if w.recipe.Fetch != nil {
		if m.Modules, err = t.modules(w.recipe.Fetch.Output); err != nil {
			return Manifest{}, err
		}
	}
	for name, script := range w.recipe.Tools {
		if m.Tools[name], err = in.firstLine(ctx, script); err != nil {
			return Manifest{}, fmt.Errorf("ask for the version of %s: %w", name, err)
		}
	}
	m.BuiltWith, err = toolVersions(ctx)
	return m, err
}

// makeImage turns the tree into an EROFS file system. Tails are not inlined:
// gVisor cannot execute such files. Extended attributes are left out: they
// would carry the host's security labels.
func (w *work) makeImage(ctx context.Context, root, path string) error {
	digest := w.recipe.Digest()
	uuid := fmt.Sprintf("%s-%s-8%s-8%s-%s", digest[:8], digest[8:12], digest[13:16], digest[17:20], digest[20:32])
	err := command{
		argv: []string{
			"mkfs.erofs", "--quiet", "-d0", "-x-1", "-E", "noinline_data",
			"-T" + strconv.FormatInt(w.recipe.Mtime, 10), "-U", uuid, path, root,
		},
		env:     []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8"},
		offline: true,
		log:     w.log,
	}.run(ctx)
	if err != nil {
		return err
	}
	if err := os.Chmod(path, 0o644); err != nil {
		return fmt.Errorf("make the image readable: %w", err)
	}
	return syncFile(path)
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("sync the image: %w", err)
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return fmt.Errorf("sync the image: %w", err)
	}
	return nil
}

// finish writes the manifest and publishes the image.
func (w *work) finish(ctx context.Context, out string, m Manifest) error {
	sum, size, err := hashFile(ctx, filepath.Join(out, ImageFile))
	if err != nil {
		return err
	}
	m.Image = ImageInfo{File: ImageFile, SHA256: sum, Size: size}
	if err := m.write(filepath.Join(out, ManifestFile)); err != nil {
		return err
	}
	if err := m.SBOM().write(filepath.Join(out, SBOMFile)); err != nil {
		return err
	}
	if err := syncDir(out); err != nil {
		return err
	}
	return w.publish(out)
}
