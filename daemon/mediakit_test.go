package daemon_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/internal/testenv"
)

// TestMediakit runs mediakit's own tests in a sandbox without a network, over
// the module as it is in the image.
func TestMediakit(t *testing.T) {
	d := daemontest.Start(t, func(c *config.Config) { c.Limits.TurnBudget = config.Duration(20 * time.Minute) })
	if _, err := d.CreateChat(t.Context(), api.NewChat{ID: api.DefaultChat, Network: "none"}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(testenv.Root(t), "rootfs", "mediakit", "tests")
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".py" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = d.PutFile(t.Context(), api.DefaultChat, "/workspace/"+e.Name(), f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"coffee.png", "rocket.jpg"} {
		put(t, d, name)
	}
	for _, module := range []string{"test_photo", "test_video"} {
		t.Run(module, func(t *testing.T) {
			cmd := d.Finish(api.NewCommand{
				Argv: []string{"python3", "-m", "unittest", module}, Env: map[string]string{"MEDIA": "/inputs"}, Timeout: 600,
			})
			_, stderr := d.Printed(cmd)
			if cmd.State != api.StateSucceeded || !strings.Contains(stderr, "\nOK") {
				t.Errorf("%s: %s\n%s", cmd.State, cmd.Reason, stderr)
			}
		})
	}
}
