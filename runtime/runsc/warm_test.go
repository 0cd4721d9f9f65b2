package runsc_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"mediasandbox/internal/testenv"
	"mediasandbox/runtime/sandbox"
)

// python runs a script in the sandbox, warm or fresh.
func (r *rig) python(h sandbox.Handle, warm bool, stdin, source string, args ...string) (sandbox.Status, *output) {
	r.Helper()
	r.serial++
	id := fmt.Sprintf("py-%d", r.serial)
	o := &output{}
	path := "/run/commands/script/script.py"
	cmd := sandbox.Command{
		Argv: append([]string{"python3", path}, args...), Dir: "/workspace", KillGrace: time.Second, Sink: o, Warm: warm,
		Files: []sandbox.File{{Path: path, Data: []byte(source)}},
		Env:   append(testenv.Image(r.T).Manifest.Environ(), "EXTRA=given"),
	}
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	p, err := h.Start(r.Context(), id, cmd)
	if err != nil {
		r.Fatal(err)
	}
	st := r.await(p)
	if err := p.Forget(); err != nil {
		r.Fatal(err)
	}
	return st, o
}

// startWarm boots a sandbox and waits until its Python is warm.
func (r *rig) startWarm(id string) sandbox.Handle {
	r.Helper()
	spec := r.spec(id)
	spec.WarmEnv = testenv.Image(r.T).Manifest.Environ()
	h, err := r.runtime.Start(r.Context(), spec)
	if err != nil {
		r.Fatal(err)
	}
	r.awaitWarm(h)
	return h
}

// awaitWarm waits until a child is forked ahead: beside its parent, which makes
// two processes of one name. The next warm command most likely becomes it.
func (r *rig) awaitWarm(h sandbox.Handle) {
	r.Helper()
	r.eventually("a warm python", func() bool { return r.ps(h, "media-sandbox-warm.py") == 2 })
}

// prefix notes whether a script found its imports done.
const prefix = "import sys as _s; open('/workspace/warm', 'w').write(str('PIL.Image' in _s.modules)); del _s\n"

// warmly runs a script in the warm Python for certain.
func (r *rig) warmly(h sandbox.Handle, name, stdin, source string, args []string) (st sandbox.Status, o *output) {
	r.Helper()
	r.eventually(name+" in the warm python", func() bool {
		r.awaitWarm(h)
		st, o = r.python(h, true, stdin, source, args...)
		if name == "syntax error" || name == "processes" {
			return true // it never comes to note anything, or its children do again
		}
		noted, err := os.ReadFile(filepath.Join(r.dir, "disk-"+h.ID(), "workspace", "warm"))
		return err == nil && string(noted) == "True"
	})
	return st, o
}

// TestWarmPythonIsLikeAFreshOne runs each script both ways.
func TestWarmPythonIsLikeAFreshOne(t *testing.T) {
	r := newRig(t)
	h := r.startWarm("warm")
	for name, tt := range map[string]struct {
		stdin, source string
		args          []string
	}{
		"argv":                   {"", "import sys; print(sys.argv, sys.orig_argv[1:], __name__, __file__, sys.path[0])", []string{"a", "b c", "é"}},
		"environment":            {"", "import os; print(sorted(os.environ.items()), os.getcwd(), oct(os.umask(0)))", nil},
		"stdin":                  {"one\ntwo\n", "import sys; print([l for l in sys.stdin], input.__name__)", nil},
		"no stdin":               {"", "import sys; print(repr(sys.stdin.read()))", nil},
		"exit code":              {"", "import sys; sys.exit(7)", nil},
		"exit text":              {"", "import sys; sys.exit('because')", nil},
		"os exit":                {"", "import os; print('x', flush=True); os._exit(9)", nil},
		"traceback":              {"", "def f(x):\n    return 1 / x\n\nprint('before')\nf(0)\n", nil},
		"chained":                {"", "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e\n", nil},
		"syntax error":           {"", "print('never')\nif True\n    pass\n", nil},
		"signal":                 {"", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)", nil},
		"interrupt":              {"", "import os, signal; os.kill(os.getpid(), signal.SIGINT)", nil},
		"atexit":                 {"", "import atexit; atexit.register(print, 'bye'); print('hi')", nil},
		"file left open":         {"", "f = open('/workspace/left', 'w'); f.write('text')\nimport atexit; atexit.register(lambda: print(repr(open('/workspace/left').read())))", nil},
		"file written out":       {"", "print(repr(open('/workspace/left').read()))", nil},
		"last words":             {"", "class C:\n    def __init__(self, n): self.n = n\n    def __del__(self): print('gone', self.n)\n_a = C('private'); b = C('public'); c = [C('cycle')]; c.append(c); print('end')", nil},
		"last words of a module": {"", "import sys, types\nm = types.ModuleType('mine'); sys.modules['mine'] = m\nclass C:\n    def __del__(self): print('gone with its module')\nm.c = C(); del C, m", nil},
		"finalizer":              {"", "import weakref\nclass C: pass\nc = C(); weakref.finalize(c, print, 'finalized'); print('end')", nil},
		"atexit fails":           {"", "import atexit\nclass F:\n    def __repr__(self): return 'F'\n    def __call__(self): 1 / 0\nf = F()\natexit.register(print, 'first'); atexit.register(f); print('end')", nil},
		"big exit code":          {"", "import sys; sys.exit(258)", nil},
		"odd exit code":          {"", "import sys; sys.exit(['a', 1])", nil},
		"closed stdout":          {"", "import sys; print('x'); sys.stdout.flush(); sys.stdout.close()", nil},
		"full stdout":            {"", "import os, sys; os.dup2(os.open('/dev/full', os.O_WRONLY), 1); print('never')", nil},
		"pool left open":         {"", "from concurrent.futures import ThreadPoolExecutor\nimport time\np = ThreadPoolExecutor(2); p.submit(lambda: (time.sleep(0.05), print('done'))); print('end')", nil},
		"temporary":              {"", "import tempfile, os, atexit\nd = tempfile.TemporaryDirectory(dir='/workspace', prefix='tmp-'); print(os.path.isdir(d.name))", nil},
		"temporary gone":         {"", "import os; print([n for n in os.listdir('/workspace') if n.startswith('tmp-')])", nil},
		"threads":                {"", "import threading, time\ndef f():\n    time.sleep(0.05); print('late')\nthreading.Thread(target=f).start()\nprint('main')", nil},
		"main module":            {"", "import sys; x = 5; print(sys.modules['__main__'].x, sorted(k for k in globals() if k != '__builtins__'))", nil},
		"pickle of main":         {"", "import pickle\nclass C: pass\nprint(pickle.loads(pickle.dumps(C())).__class__.__module__)", nil},
		"processes": {"", "import multiprocessing as m\ndef f(x): return x * x\nif __name__ == '__main__':\n    with m.Pool(2) as p: print(p.map(f, range(5)))\n" +
			"    with m.get_context('spawn').Pool(1) as p: print(p.map(f, range(3)))", nil},
		"subprocess": {"", "import subprocess; print(subprocess.run(['sh', '-c', 'echo $EXTRA; exit 3'], capture_output=True))", nil},
		"session":    {"", "import os; print(os.getsid(0) == os.getpid() == os.getpgid(0), os.getppid())", nil},
		"cgroup":     {"", "print(open('/proc/self/cgroup').read().count('command-'))", nil},
		"hash":       {"", "print(hash('text'), {1, 2, 3}, {'b', 'a', 'c'})", nil},
		"streams":    {"", "import sys\nfor s in (sys.stdin, sys.stdout, sys.stderr): print(s.encoding, s.errors, s.isatty(), s.line_buffering)\nprint('e', file=sys.stderr)", nil},
		"descriptors": {"", "import os; print(sorted(os.listdir('/proc/self/fd'), key=int)[:3])\nfor f in os.listdir('/proc/self/fd'):\n" +
			"    if int(f) > 2:\n        try: print(os.readlink('/proc/self/fd/' + f))\n        except OSError: pass", nil},
		"draw": {"", "from PIL import Image, ImageDraw\nimport numpy as np\nim = Image.new('RGB', (64, 64)); ImageDraw.Draw(im).ellipse((8, 8, 56, 56), fill='red')\n" +
			"im.save('/workspace/x.png'); print(int(np.asarray(im).sum()))", nil},
		"plot": {"", "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2]); plt.savefig('/workspace/p.png'); print(plt.get_backend())", nil},
	} {
		fresh, want := r.python(h, false, tt.stdin, prefix+tt.source, tt.args...)
		warm, got := r.warmly(h, name, tt.stdin, prefix+tt.source, tt.args)
		if !reflect.DeepEqual(warm, fresh) {
			t.Errorf("%s: ended with %+v, fresh %+v", name, warm, fresh)
		}
		for _, s := range []sandbox.Stream{sandbox.Stdout, sandbox.Stderr} {
			if got.text(s) != want.text(s) {
				t.Errorf("%s: stream %d:\n%s\nfresh:\n%s", name, s, got.text(s), want.text(s))
			}
		}
	}
}

func TestWarmPythonHasItsImportsDone(t *testing.T) {
	r := newRig(t)
	h := r.startWarm("imports")
	const source = "import sys; print('PIL.Image' in sys.modules, 'numpy' in sys.modules)"
	r.eventually("a script with its imports done", func() bool {
		_, o := r.python(h, true, "", source)
		return o.text(sandbox.Stdout) == "True True\n"
	})
	if _, o := r.python(h, false, "", source); o.text(sandbox.Stdout) != "False False\n" {
		t.Errorf("fresh: %s", o.text(sandbox.Stdout))
	}
	// While none is ready a fresh one answers.
	r.awaitWarm(h)
	for range 4 {
		if st, o := r.python(h, true, "", "print('ok')"); st.Code != 0 || o.text(sandbox.Stdout) != "ok\n" {
			t.Errorf("%+v: %s", st, o.text(sandbox.Stdout))
		}
	}
}

// TestWarmPythonDrawsAnew makes sure that no two scripts share a random state.
func TestWarmPythonDrawsAnew(t *testing.T) {
	r := newRig(t)
	h := r.startWarm("random")
	seen := make(map[string]bool)
	for range 5 {
		r.awaitWarm(h)
		_, o := r.python(h, true, "", "import random, uuid, numpy; print(random.random(), numpy.random.rand(), uuid.uuid4())")
		for _, word := range strings.Fields(o.text(sandbox.Stdout)) {
			if seen[word] {
				t.Errorf("%s was drawn twice", word)
			}
			seen[word] = true
		}
	}
	if len(seen) != 15 {
		t.Errorf("%d draws", len(seen))
	}
}

// TestWarmPythonOneAfterTheOther starts scripts while the child for them is still
// being forked: each becomes a warm one, and what ends or signals it before it is
// there counts.
func TestWarmPythonOneAfterTheOther(t *testing.T) {
	r := newRig(t)
	h := r.startWarm("s-warm-row")
	for i := range 5 {
		if st, o := r.python(h, true, "", "print('here')"); st.Code != 0 || o.text(sandbox.Stdout) != "here\n" {
			t.Fatalf("script %d: %+v, it printed %q", i, st, o.text(sandbox.Stdout))
		}
	}
	for name, end := range map[string]func(sandbox.Process) error{
		"killed":   sandbox.Process.Kill,
		"signaled": func(p sandbox.Process) error { return p.Signal(15) },
	} {
		o := &output{}
		path := "/run/commands/script/script.py"
		p, err := h.Start(t.Context(), "row-"+name, sandbox.Command{
			Argv: []string{"python3", path}, Dir: "/workspace", KillGrace: time.Second, Sink: o, Warm: true,
			Files: []sandbox.File{{Path: path, Data: []byte("import time; time.sleep(1000)")}},
			Env:   testenv.Image(t).Manifest.Environ(),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := end(p); err != nil {
			t.Fatal(err)
		}
		if st := r.await(p); st.Signal == 0 {
			t.Errorf("%s at once, it ended as %+v", name, st)
		}
	}
}
