package daemon_test

import (
	"bytes"
	"strings"
	"testing"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/rootfs"
)

// TestImageInASandbox runs what the recipe checks at build time once more where
// it counts: in gVisor, without a network.
func TestImageInASandbox(t *testing.T) {
	recipe, err := rootfs.Default()
	if err != nil {
		t.Fatal(err)
	}
	d := daemontest.Start(t)
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: api.DefaultChat, Network: "none"}); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, check := range recipe.Checks {
		if check.BuildOnly {
			continue
		}
		ran++
		t.Run(check.Name, func(t *testing.T) {
			cmd := d.Finish(api.NewCommand{Argv: []string{"sh", "-euc", check.Run}})
			if cmd.State != api.StateSucceeded {
				stdout, stderr := d.Printed(cmd)
				t.Errorf("%s: %s\n%s%s", cmd.State, cmd.Reason, stdout, stderr)
			}
		})
	}
	if ran < 8 {
		t.Errorf("only %d checks are for sandboxes", ran)
	}
}

// TestInstallingMore installs a wheel and a package of npm as root, without any
// flag, from files: what an agent does that brings its own tools.
func TestInstallingMore(t *testing.T) {
	d := daemontest.Start(t)
	cmd := d.Finish(api.NewCommand{Argv: []string{"sh", "-euc", `
mkdir -p wheel/tinytool-1.0.dist-info wheel/tinytool
echo 'def shout(text): return text.upper()' >wheel/tinytool/__init__.py
cd wheel
printf 'Metadata-Version: 2.1\nName: tinytool\nVersion: 1.0\n' >tinytool-1.0.dist-info/METADATA
printf 'Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >tinytool-1.0.dist-info/WHEEL
printf 'tinytool/__init__.py,,\ntinytool-1.0.dist-info/METADATA,,\ntinytool-1.0.dist-info/WHEEL,,\ntinytool-1.0.dist-info/RECORD,,\n' >tinytool-1.0.dist-info/RECORD
zip -qr ../tinytool-1.0-py3-none-any.whl .
cd ..
pip install --no-index ./tinytool-1.0-py3-none-any.whl
python -c 'import tinytool, cv2; print(tinytool.shout("pip works"))'
python -m venv env
env/bin/pip install --no-index ./tinytool-1.0-py3-none-any.whl
env/bin/python -c 'import tinytool; print(tinytool.shout("venv works"))'

mkdir -p pack/bin
echo '{"name":"tiny-tool","version":"1.0.0","bin":{"tiny-tool":"bin/t.js"},"main":"bin/t.js"}' >pack/package.json
printf '#!/usr/bin/env node\nconsole.log("NPM WORKS")\n' >pack/bin/t.js
tar -czf tiny.tgz --transform 's/^pack/package/' pack
npm install -g ./tiny.tgz
tiny-tool
mkdir project && cd project
npm install ../tiny.tgz
node -e 'require("tiny-tool")'
`}})
	stdout, stderr := d.Printed(cmd)
	if cmd.State != api.StateSucceeded {
		t.Fatalf("%s: %s\n%s%s", cmd.State, cmd.Reason, stdout, stderr)
	}
	for _, want := range []string{"PIP WORKS", "VENV WORKS", "NPM WORKS\n"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("stdout lacks %q:\n%s", want, stdout)
		}
	}
	if n := strings.Count(stdout, "NPM WORKS"); n != 2 {
		t.Errorf("npm's package ran %d times", n)
	}
}

// TestTitleIsTheSameTwice renders a title with HyperFrames in two sandboxes.
func TestTitleIsTheSameTwice(t *testing.T) {
	var renders [2][]byte
	for i := range renders {
		d := daemontest.Start(t)
		cmd := succeeded(t, d, d.Finish(api.NewCommand{Argv: []string{"sh", "-euc", titleScript}}))
		if len(cmd.Cells) != 1 {
			t.Fatalf("cells: %+v", cmd.Cells)
		}
		renders[i] = content(t, d, 1)
		d.Stop()
	}
	if !bytes.Equal(renders[0], renders[1]) {
		t.Errorf("the title has %d bytes and %d, and they differ", len(renders[0]), len(renders[1]))
	}
}

// titleScript renders one second of 360p with letters of five scripts and an
// emoji.
const titleScript = `
mkdir title && cd title
cp /usr/lib/media-node/node_modules/animejs/dist/bundles/anime.umd.min.js anime.js
cat >index.html <<'HTML'
<!doctype html><html><head><meta charset="utf-8"><style>
body { margin: 0 }
#title { position: relative; width: 640px; height: 360px; overflow: hidden }
#back { position: absolute; inset: 0; background: #12203a }
h1 { position: absolute; left: 40px; top: 110px; margin: 0; font: 800 56px Montserrat; color: white }
p { position: absolute; left: 40px; top: 200px; margin: 0; font: 24px "Open Sans"; color: #fc6 }
</style></head><body>
<div id="title" data-composition-id="title" data-start="0" data-duration="1" data-width="640" data-height="360">
<div id="back" class="clip" data-start="0" data-duration="1" data-track-index="0"></div>
<div id="text" class="clip" data-start="0" data-duration="1" data-track-index="1"><h1>Spring drop</h1><p>春の新作 봄 신상 عربي नमस्ते 😀🌸</p></div>
</div>
<script src="anime.js"></script>
<script>
const line = anime.createTimeline({ autoplay: false }).add("h1", { translateX: [-80, 0], opacity: [0, 1], duration: 600, ease: "outCubic" }, 0);
window.__timelines = { title: { duration: () => 1, seek: t => line.seek(t * 1000), time: () => line.currentTime / 1000, play() {}, pause() {} } };
</script></body></html>
HTML
hyperframes render . -o /outputs/title.mp4 -w 1 --no-browser-gpu
`
