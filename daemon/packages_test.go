package daemon_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/runtime/sandbox"
)

// startIndex serves a Python package index with one package on loopback.
func startIndex(t *testing.T) sandbox.NetworkService {
	t.Helper()
	const file = "darkroom_demo-1.0-py3-none-any.whl"
	var wheel bytes.Buffer
	z := zip.NewWriter(&wheel)
	for _, f := range [][2]string{
		{"darkroom_demo.py", "ANSWER = 'from the index'\n"},
		{"darkroom_demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: darkroom-demo\nVersion: 1.0\n"},
		{"darkroom_demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"darkroom_demo-1.0.dist-info/RECORD", "darkroom_demo.py,,\n"},
	} {
		w, err := z.Create(f[0])
		if err == nil {
			_, err = w.Write([]byte(f[1]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/simple/darkroom-demo/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<a href="/files/%s">%s</a>`, file, file)
	})
	mux.HandleFunc("/files/"+file, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(wheel.Bytes()) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s, err := sandbox.ParseNetworkService("index.internal:80 = " + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPackagesInstall installs with the guest's own package managers, as root:
// apt from its real archive, and pip from an index on the host.
func TestPackagesInstall(t *testing.T) {
	d := daemontest.Start(t, withService(startIndex(t)), func(c *config.Config) { c.Limits.Memory = 2 << 30 })
	apt := d.Finish(api.NewCommand{Shell: "apt-get -q update && apt-get -q install -y hello python3-pip && hello", Timeout: 300})
	out, errs := d.Printed(apt)
	if apt.State != api.StateSucceeded || !strings.Contains(out, "Hello, world!") {
		t.Fatalf("apt: %s (%s)\n%s\n%s", apt.State, apt.Reason, out, errs)
	}
	pip := d.Finish(api.NewCommand{Shell: `python3 -m pip install --break-system-packages --disable-pip-version-check --no-cache-dir \
		--index-url http://index.internal/simple/ --trusted-host index.internal darkroom-demo &&
		python3 -c 'import darkroom_demo; print(darkroom_demo.ANSWER)'`, Timeout: 120})
	out, errs = d.Printed(pip)
	if pip.State != api.StateSucceeded || !strings.HasSuffix(out, "from the index\n") {
		t.Fatalf("pip: %s (%s)\n%s\n%s", pip.State, pip.Reason, out, errs)
	}
	flows, err := d.Flows(t.Context(), api.DefaultChat)
	if err != nil || !slices.ContainsFunc(flows.Closed, func(f api.NetworkFlow) bool { return f.Rule == "mode-public" && f.Name != "" && f.Received > 1<<20 }) ||
		!slices.ContainsFunc(flows.Closed, func(f api.NetworkFlow) bool { return f.Rule == "service" && f.Name == "index.internal" }) {
		t.Errorf("flows: %+v, %v", flows, err)
	}
}

// startRegistry serves a registry of npm's with one package on loopback.
func startRegistry(t *testing.T) sandbox.NetworkService {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	a := tar.NewWriter(z)
	for name, text := range map[string]string{
		"package/package.json": `{"name":"darkroom-demo","version":"1.0.0","main":"index.js"}`,
		"package/index.js":     "module.exports = 'from the registry';\n",
	} {
		err := a.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))})
		if err == nil {
			_, err = a.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(a.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha512.Sum512(packed.Bytes())
	mux := http.NewServeMux()
	mux.HandleFunc("/darkroom-demo", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"name":"darkroom-demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"darkroom-demo","version":"1.0.0",
			"dist":{"tarball":"http://index.internal/darkroom-demo.tgz","integrity":"sha512-%s"}}}}`, base64.StdEncoding.EncodeToString(sum[:]))
	})
	mux.HandleFunc("/darkroom-demo.tgz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(packed.Bytes()) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s, err := sandbox.ParseNetworkService("index.internal:80 = " + server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestNpmInstalls installs a package as the guest's root, from a registry on the
// host and with nothing else allowed: what npm tries beside it must not hold it up.
func TestNpmInstalls(t *testing.T) {
	d := daemontest.Start(t, withService(startRegistry(t)), func(c *config.Config) { c.Limits.Memory = 2 << 30 })
	mode, rules := "allowlist", []string{"allow tcp index.internal:80"}
	if _, err := d.SetNetwork(t.Context(), api.DefaultChat, api.NetworkSettings{Mode: &mode, Rules: &rules}); err != nil {
		t.Fatal(err)
	}
	npm := d.Finish(api.NewCommand{
		Shell:   `test "$(id -u)" = 0 && npm install --no-fund --registry http://index.internal/ darkroom-demo && node -p 'require("darkroom-demo")'`,
		Timeout: 120,
	})
	out, errs := d.Printed(npm)
	if npm.State != api.StateSucceeded || !strings.HasSuffix(out, "from the registry\n") {
		t.Fatalf("npm: %s (%s)\n%s\n%s", npm.State, npm.Reason, out, errs)
	}
	flows, err := d.Flows(t.Context(), api.DefaultChat)
	if err != nil || len(flows.Open)+len(flows.Closed) == 0 || slices.ContainsFunc(flows.Closed, func(f api.NetworkFlow) bool { return f.Name != "index.internal" }) {
		t.Errorf("flows: %+v, %v", flows, err)
	}
}
