package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// BuilderVersion is raised when the builder makes another image from the same
// recipe. It is part of every recipe digest.
const BuilderVersion = 2

// Names within the cache directory. Leftovers of killed builds begin with
// buildPrefix; the next build removes them.
const (
	lockName    = ".lock"
	logName     = "build.log"
	buildPrefix = ".build-"
)

// Builder builds images.
type Builder struct {
	// Recipe is what to build; nil means the embedded one.
	Recipe *Recipe
	// CacheDir receives the image. It is made when it is not there.
	CacheDir string
	// Mirror is the Debian archive to take packages from. Empty means the one
	// of this host's apt sources, else the one mmdebstrap knows.
	Mirror string
	// Force builds also when the image is there.
	Force bool
	// Progress receives a line for each step; nil means nowhere.
	Progress io.Writer
}

// Result says what Build did.
type Result struct {
	Image Image
	// Built is false when the image was there already.
	Built bool
	Took  time.Duration
}

// Build returns the image of the recipe, and builds it when it is not in the
// cache. It needs root, mmdebstrap and erofs-utils. Two builds in one cache
// directory take turns; the second finds the image of the first. A build that
// fails or whose context ends leaves nothing but its log.
func (b *Builder) Build(ctx context.Context) (Result, error) {
	started := time.Now()
	recipe := b.Recipe
	if recipe == nil {
		var err error
		if recipe, err = Default(); err != nil {
			return Result{}, err
		}
	}
	out := b.Progress
	if out == nil {
		out = io.Discard
	}
	w := &work{Builder: b, recipe: recipe, progress: &progress{out: &oneAtATime{out: out}, now: time.Now, total: 6}}
	result, err := w.run(ctx)
	if err != nil {
		return Result{}, err
	}
	result.Took = time.Since(started)
	return result, nil
}

// work is one call of Build.
type work struct {
	*Builder
	recipe   *Recipe
	progress *progress
	// dir is the build's own directory, beside the finished images.
	dir string
	log *os.File
	// sources are the image's apt sources.
	sources []source
}

// run takes the cheap way out when the image is there, before and after it
// waited for other builds.
func (w *work) run(ctx context.Context) (Result, error) {
	if image, ok, err := w.cached(); ok || err != nil {
		return Result{Image: image}, err
	}
	if err := checkHost(); err != nil {
		return Result{}, err
	}
	if err := os.MkdirAll(w.CacheDir, 0o755); err != nil {
		return Result{}, fmt.Errorf("make the image cache: %w", err)
	}
	unlock, err := lock(ctx, filepath.Join(w.CacheDir, lockName), func() {
		w.progress.note("another build is running in %s: waiting for it", w.CacheDir)
	})
	if err != nil {
		return Result{}, err
	}
	defer unlock()
	if image, ok, err := w.cached(); ok || err != nil {
		return Result{Image: image}, err
	}
	image, err := w.locked(ctx)
	if err != nil {
		return Result{}, w.explain(ctx, err)
	}
	return Result{Image: image, Built: true}, nil
}

// cached returns the image when it is there and need not be built. An image
// that contradicts its manifest is an error, not a reason to build: something
// is wrong with the disk, and the operator should hear of it.
func (w *work) cached() (Image, bool, error) {
	if w.Force {
		return Image{}, false, nil
	}
	image, err := LocateRecipe(w.CacheDir, w.recipe)
	if errors.Is(err, ErrNoImage) {
		return Image{}, false, nil
	}
	return image, err == nil, err
}

// locked builds while the lock is held.
func (w *work) locked(ctx context.Context) (_ Image, err error) {
	if err := w.sweep(); err != nil {
		return Image{}, err
	}
	if err := checkSpace(w.CacheDir, w.recipe.BuildSpaceMB); err != nil {
		return Image{}, err
	}
	w.log, err = os.Create(filepath.Join(w.CacheDir, logName))
	if err != nil {
		return Image{}, fmt.Errorf("make the build log: %w", err)
	}
	defer w.log.Close()
	w.dir, err = os.MkdirTemp(w.CacheDir, buildPrefix)
	if err != nil {
		return Image{}, fmt.Errorf("make the build directory: %w", err)
	}
	defer func() { err = errors.Join(err, removeTree(w.dir)) }()
	return w.steps(ctx)
}

// sweep removes what builds that were killed left behind. The caller holds the
// lock, so no build is running.
func (w *work) sweep() error {
	left, err := filepath.Glob(filepath.Join(w.CacheDir, buildPrefix+"*"))
	if err != nil {
		return fmt.Errorf("look for left-over builds: %w", err)
	}
	for _, dir := range left {
		w.progress.note("removing the left-over of a killed build: %s", dir)
		if err := removeTree(dir); err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes a build directory. Mounts of a build live in namespaces
// that ended with it; were one here, removing would delete the host's files.
func removeTree(dir string) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("remove the build directory: %w", err)
	}
	// The kernel names mounts by their real path.
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("remove the build directory: %w", err)
	}
	if strings.Contains(string(mounts), " "+real+"/") {
		return fmt.Errorf("remove the build directory: something is mounted below %s: unmount it, then build again", dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the build directory: %w", err)
	}
	return nil
}

// explain adds to a build's error what to do about it.
func (w *work) explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("build the image: %w (%v): nothing is left of it; to start over, %s", ctx.Err(), cause, buildHint)
	}
	if w.log == nil {
		return fmt.Errorf("build the image: %w", err)
	}
	return fmt.Errorf("build the image: %w; the last lines of %s:\n  %s", err, w.log.Name(), tail(w.log.Name(), 12))
}

// publish puts the finished directory where Locate looks, at once. An older
// image of the same recipe gives way; sandboxes that run from it keep it open.
func (w *work) publish(dir string) error {
	target := filepath.Join(w.CacheDir, w.recipe.Digest())
	err := unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	if errors.Is(err, unix.EEXIST) {
		// What was there is now in the build directory, and goes with it.
		err = unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, target, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		return fmt.Errorf("publish the image at %s: %w", target, err)
	}
	return syncDir(w.CacheDir)
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := dir.Sync(); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}
