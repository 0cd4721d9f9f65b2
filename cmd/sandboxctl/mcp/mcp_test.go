package mcp_test

import (
	"bytes"
	"context"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// agent is a client of the built server, as an agent starts it.
type agent struct {
	*testing.T
	daemon  *daemontest.Daemon
	session *sdk.ClientSession
	dir     string

	mu       sync.Mutex
	progress []sdk.ProgressNotificationParams
}

func newAgent(t *testing.T, args ...string) *agent {
	a := &agent{T: t, daemon: daemontest.Start(t), dir: testenv.Dir(t)}
	cmd := exec.Command(testenv.Bin(t, "sandboxctl"), append([]string{"mcp", "--chat", "agent", "--dir", a.dir}, args...)...)
	cmd.Env = append(os.Environ(), api.SocketEnv+"="+a.daemon.Socket())
	var said bytes.Buffer
	cmd.Stderr = &said
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ClientOptions{
		ProgressNotificationHandler: func(_ context.Context, req *sdk.ProgressNotificationClientRequest) {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.progress = append(a.progress, *req.Params)
		},
	})
	session, err := c.Connect(t.Context(), &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	a.session = session
	t.Cleanup(func() {
		if err := session.Close(); err != nil {
			t.Errorf("the server ended with %v: %s", err, said.String())
		}
		if said.Len() > 0 {
			t.Errorf("the server said %s", said.String())
		}
	})
	return a
}

// call calls a tool, and returns its text and its other content.
func (a *agent) call(name string, args map[string]any) (string, []sdk.Content, bool) {
	a.Helper()
	params := &sdk.CallToolParams{Name: name, Arguments: args}
	params.SetProgressToken(name)
	res, err := a.session.CallTool(a.Context(), params)
	if err != nil {
		a.Fatalf("%s %v: %v", name, args, err)
	}
	if len(res.Content) == 0 {
		a.Fatalf("%s %v: it answered nothing", name, args)
	}
	text, ok := res.Content[0].(*sdk.TextContent)
	if !ok {
		return "", res.Content, res.IsError
	}
	return text.Text, res.Content[1:], res.IsError
}

// good calls a tool that works and says all of want.
func (a *agent) good(name string, args map[string]any, want ...string) (string, []sdk.Content) {
	a.Helper()
	text, rest, failed := a.call(name, args)
	if failed {
		a.Errorf("%s %v failed: %s", name, args, text)
	}
	for _, w := range want {
		if !strings.Contains(text, w) {
			a.Errorf("%s %v says no %q:\n%s", name, args, w, text)
		}
	}
	return text, rest
}

// bad calls a tool that refuses, and says why.
func (a *agent) bad(name string, args map[string]any, want string) {
	a.Helper()
	if text, _, failed := a.call(name, args); !failed || !strings.Contains(text, want) {
		a.Errorf("%s %v is not refused for %q: %s", name, args, want, text)
	}
}

const drawing = `from PIL import Image
Image.new("RGB", (320, 200), "red").save("/outputs/red.png")
print("drawn")`

func TestRunAndLook(t *testing.T) {
	a := newAgent(t)
	_, rest := a.good("run_python", map[string]any{"code": drawing, "label": "test"}, "succeeded", "drawn", "#1 image-edit red.png", "320×200", "label test", "budget left")
	link, ok := rest[0].(*sdk.ResourceLink)
	if !ok || link.URI != "cell:///1" || link.MIMEType != "image/png" {
		t.Fatalf("it links %+v", rest[0])
	}
	_, seen := a.good("look", map[string]any{"cell": "#1"}, "red.png")
	if len(seen) != 1 {
		t.Fatalf("look shows %+v", seen)
	}
	if img, err := png.Decode(bytes.NewReader(seen[0].(*sdk.ImageContent).Data)); err != nil || img.Bounds().Dx() != 320 {
		t.Errorf("look shows another picture: %v", err)
	}
	res, err := a.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: link.URI})
	if err != nil || len(res.Contents) != 1 || res.Contents[0].MIMEType != "image/png" || !bytes.Equal(res.Contents[0].Blob, seen[0].(*sdk.ImageContent).Data) {
		t.Errorf("the resource is %+v, %v", res, err)
	}
	a.good("cells", map[string]any{"pill": "image-edit"}, "1 cells", "#1")
	a.good("cells", map[string]any{"text": "nothing"}, "0 cells")
	a.good("replay", map[string]any{"cell": "#1"}, `"verdict": "identical"`)
	a.good("provenance", map[string]any{"cell": "1"}, "Image.new")
	a.good("run_shell", map[string]any{"command": "magick /inputs/red.png -resize 50% /outputs/half.png", "inputs": []string{"#1"}}, "#2", "160×100")
	for _, wrong := range []string{"#9", "x"} {
		a.bad("look", map[string]any{"cell": wrong}, "cell")
	}
	a.bad("run_python", map[string]any{"code": "raise SystemExit(3)"}, "exit code 3")
	a.bad("run_shell", map[string]any{"command": "true", "timeout_seconds": 6000}, "600")
	a.good("status", nil, "chat agent", "sandbox")
	// Cells appear as resources by themselves.
	deadline := time.Now().Add(20 * time.Second)
	for {
		list, err := a.session.ListResources(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Resources) == 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the resources are %+v", list.Resources)
		}
	}
}

func TestFilesStayInTheDirectory(t *testing.T) {
	a := newAgent(t)
	outside := filepath.Join(testenv.Dir(t), "secret.txt")
	for path, body := range map[string]string{outside: "secret", filepath.Join(a.dir, "in.txt"): "inside"} {
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(a.dir, "link.txt")); err != nil {
		t.Fatal(err)
	}
	a.good("put_file", map[string]any{"file": "in.txt"}, "/inputs/in.txt", "6 B")
	a.good("put_file", map[string]any{"file": filepath.Join(a.dir, "in.txt"), "to": "/workspace/b.txt"}, "/workspace/b.txt")
	a.good("put_file", map[string]any{"text": "given", "to": "/workspace/c.txt"}, "5 B")
	a.good("put_file", map[string]any{"base64": "Z2l2ZW4=", "to": "/workspace/d.txt"}, "5 B")
	a.good("list_files", nil, "/workspace/b.txt", "/workspace/c.txt")
	if text, _ := a.good("get_file", map[string]any{"path": "/workspace/b.txt"}); text != "inside" {
		t.Errorf("it returned %q", text)
	}
	a.good("get_file", map[string]any{"path": "/workspace/c.txt", "to": "out.txt"}, filepath.Join(a.dir, "out.txt"))
	if body, err := os.ReadFile(filepath.Join(a.dir, "out.txt")); string(body) != "given" {
		t.Errorf("it saved %q, %v", body, err)
	}
	for _, path := range []string{outside, "../secret.txt", "link.txt", ".", "/etc/passwd"} {
		text, _, failed := a.call("put_file", map[string]any{"file": path, "to": "/workspace/e"})
		if !failed || strings.Contains(text, "secret\n") {
			t.Errorf("%s can be read: %s", path, text)
		}
	}
	for _, path := range []string{outside, "../x.txt", "link.txt", "nowhere/x.txt"} {
		_, _, failed := a.call("get_file", map[string]any{"path": "/workspace/c.txt", "to": path})
		if body, err := os.ReadFile(outside); err != nil || string(body) != "secret" || (!failed && path != "link.txt") {
			t.Errorf("%s can be written: %v, the file outside holds %q", path, !failed, body)
		}
	}
	a.bad("put_file", map[string]any{"text": "x"}, "say with to")
	a.bad("put_file", map[string]any{"to": "/workspace/x"}, "exactly one")
	a.good("run_shell", map[string]any{"command": "cp /inputs/in.txt /outputs/"}, "#1 file in.txt")
	a.good("export", map[string]any{"to": "all.zip"}, "all.zip")
	if body, err := os.ReadFile(filepath.Join(a.dir, "all.zip")); err != nil || !bytes.HasPrefix(body, []byte("PK")) {
		t.Errorf("the export begins with %.10q, %v", body, err)
	}
	if left, err := filepath.Glob(filepath.Join(a.dir, "*.part")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// await calls wait as long as a command goes on.
func (a *agent) await(text string) string {
	a.Helper()
	_, rest, _ := strings.Cut(text, "command ")
	id, _, _ := strings.Cut(rest, " ")
	deadline := time.Now().Add(3 * time.Minute)
	for strings.Contains(text, "It goes on") {
		if time.Now().After(deadline) {
			a.Fatal(text)
		}
		text, _ = a.good("wait", map[string]any{"command": id})
	}
	return text
}

func TestLongWorkGoesOn(t *testing.T) {
	a := newAgent(t, "--patience", "2s")
	text, _ := a.good("run_shell", map[string]any{"command": "ffmpeg -v error -f lavfi -i testsrc2=s=1280x720:r=30:d=4 a.mp4"})
	a.await(text)
	text, _ = a.good("run_shell", map[string]any{"command": "ffmpeg -i a.mp4 -preset veryslow -y /outputs/b.mp4; sleep 3"}, "running", "It goes on")
	if text = a.await(text); !strings.Contains(text, "succeeded") || !strings.Contains(text, "#1 video-edit b.mp4") {
		t.Errorf("it ended with %s", text)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.progress) == 0 || !slices.IsSortedFunc(a.progress, func(x, y sdk.ProgressNotificationParams) int {
		if x.ProgressToken == y.ProgressToken && x.Progress > y.Progress {
			return 1
		}
		return -1
	}) {
		t.Errorf("progress was %+v", a.progress)
	}
}

func TestCancel(t *testing.T) {
	a := newAgent(t, "--patience", "1s")
	text, _ := a.good("run_shell", map[string]any{"command": "sleep 500"}, "It goes on")
	_, rest, _ := strings.Cut(text, "command ")
	id, _, _ := strings.Cut(rest, " ")
	a.bad("cancel", map[string]any{"command": id}, "canceled")

}

// TestCancelledRequest cancels a request: its command is canceled.
func TestCancelledRequest(t *testing.T) {
	a := newAgent(t)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for a.state(ctx, "sleep 501") != api.StateRunning && ctx.Err() == nil {
		}
	}()
	_, err := a.session.CallTool(ctx, &sdk.CallToolParams{Name: "run_shell", Arguments: map[string]any{"command": "sleep 501"}})
	if err == nil {
		t.Error("a cancelled request was answered")
	}
	for deadline := time.Now().Add(30 * time.Second); a.state(t.Context(), "sleep 501") != api.StateCanceled; {
		if time.Now().After(deadline) {
			t.Fatalf("its command is %s", a.state(t.Context(), "sleep 501"))
		}
	}
}

// state is that of the command with this line.
func (a *agent) state(ctx context.Context, shell string) api.State {
	commands, err := a.daemon.Commands(ctx, "agent")
	if err != nil && ctx.Err() == nil {
		a.Error(err)
	}
	for _, c := range commands {
		if c.Shell == shell {
			return c.State
		}
	}
	return ""
}

func TestSkillsAndNetwork(t *testing.T) {
	a := newAgent(t)
	a.good("skills", nil, "video-compositing", "photo-editing")
	a.good("read_skill", map[string]any{"name": "photo-editing"}, "mediakit")
	a.good("use_skills", map[string]any{"names": []string{"photo-editing"}}, "photo-editing")
	a.good("run_shell", map[string]any{"command": "ls /skills"}, "photo-editing")
	a.bad("use_skills", map[string]any{"names": []string{"nothing"}}, "nothing")
	a.good("test_network", map[string]any{"host": "127.0.0.1"}, `"allow": false`)
	res, err := a.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "skill:///photo-editing"})
	if err != nil || !strings.Contains(res.Contents[0].Text, "mediakit") {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := a.session.ReadResource(t.Context(), &sdk.ReadResourceParams{URI: "skill:///none"}); err == nil {
		t.Error("a skill that is not there can be read")
	}
}

// TestToolsSayWhatTheyAreFor reads what a model reads.
func TestToolsSayWhatTheyAreFor(t *testing.T) {
	a := newAgent(t)
	list, err := a.session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Tools) != 17 {
		t.Errorf("there are %d tools", len(list.Tools))
	}
	for _, tool := range list.Tools {
		if len(tool.Description) < 40 || len(tool.Description) > 500 || tool.Annotations == nil || tool.Annotations.Title == "" {
			t.Errorf("%s: %+v, %s", tool.Name, tool.Annotations, tool.Description)
		}
	}
	if info := a.session.InitializeResult(); !strings.Contains(info.Instructions, "Do not use the sandbox to invent pictures") {
		t.Errorf("it is introduced with %q", info.Instructions)
	}
}
