package daemon_test

import (
	"archive/zip"
	"bytes"
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
