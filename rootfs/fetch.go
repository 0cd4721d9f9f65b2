package rootfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// caBundle is where the helper tree's programs look for certificate
// authorities; it is the host's file that lies there.
const caBundle = "/etc/ssl/certs/ca-certificates.crt"

// fetch makes the helper tree in dir, runs the recipe's fetch script in it with
// the host's network, and leaves the output at output(dir).
func (w *work) fetch(ctx context.Context, dir string) error {
	f := w.recipe.Fetch
	err := w.debootstrap(ctx, dir, treePlan{
		variant: "extract", packages: f.Packages,
		exclude: []string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/include/*"},
		log:     w.log,
	})
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open the helper tree: %w", err)
	}
	defer root.Close()
	t := tree{root}
	if err := t.makeDirectories([]Directory{{Path: f.Output, Mode: 0o755}}); err != nil {
		return err
	}
	if err := t.writeFiles(w.recipe.filesBelow(f.Output)); err != nil {
		return err
	}
	// The way to the network is the host's, and goes with the helper tree.
	if err := t.copyFromHost("/etc/resolv.conf", "/etc/hosts"); err != nil {
		return err
	}
	env := slices.Concat(w.recipe.Environ(), networkEnviron())
	if bundle := hostCABundle(); bundle != "" {
		if err := t.copyFile(bundle, caBundle); err != nil {
			return err
		}
		env = append(env, "NODE_EXTRA_CA_CERTS="+caBundle, "SSL_CERT_FILE="+caBundle)
	}
	env = append(env, "HOME=/tmp")
	argv := []string{"/bin/sh", "-c", enterScript, "enter.sh", dir, string(insidePrepare), "cd " + f.Output + "\n" + f.Run}
	return command{argv: argv, env: env, log: w.log}.run(ctx)
}

// adopt moves the output of the helper tree into the image's tree, and removes
// the helper tree.
func (w *work) adopt(helper, root string) error {
	f := w.recipe.Fetch
	target := filepath.Join(root, f.Output)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return fmt.Errorf("take over %s: %w", f.Output, err)
	}
	if err := os.Rename(filepath.Join(helper, f.Output), target); err != nil {
		return fmt.Errorf("take over %s: %w", f.Output, err)
	}
	return removeTree(helper)
}

// filesBelow returns the recipe's files below a directory.
func (r *Recipe) filesBelow(dir string) []File {
	var files []File
	for _, f := range r.Files {
		if strings.HasPrefix(f.Path, dir+"/") {
			files = append(files, f)
		}
	}
	return files
}

// networkEnviron is what programs need of the host's environment to reach the
// registries that the host reaches: its proxies, and npm's own settings.
func networkEnviron() []string {
	proxies := []string{"http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if slices.Contains(proxies, name) || strings.HasPrefix(strings.ToLower(name), "npm_config_") {
			env = append(env, entry)
		}
	}
	return env
}

// hostCABundle is the host's file of certificate authorities, or empty.
func hostCABundle() string {
	for _, file := range []string{os.Getenv("NODE_EXTRA_CA_CERTS"), os.Getenv("SSL_CERT_FILE"), caBundle} {
		if file != "" && exists(file) {
			return file
		}
	}
	return ""
}

// copyFromHost copies files of the host, where it has them, to the same place
// in the tree.
func (t tree) copyFromHost(files ...string) error {
	for _, file := range files {
		if err := t.copyFile(file, file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (t tree) copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return t.writeFile(File{Path: to, Mode: 0o644, Content: string(data)})
}
