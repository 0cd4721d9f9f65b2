package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/config"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/uploader/s3/s3test"
)

// kills is how often TestKilledWhileUploading kills the daemon;
// MEDIA_SANDBOX_KILLS asks for more, MEDIA_SANDBOX_SEED repeats a run.
const kills = 25

// fromEnv is a number that the environment may give.
func fromEnv(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// crashed is a daemon that is killed again and again while it uploads to a
// server that fails again and again.
type crashed struct {
	*daemontest.Process
	t        *testing.T
	r        *rand.Rand
	server   *s3test.Server
	faults   *flaky
	chats    []string
	commands []api.Command
	// ordinals are those under which a path was ever seen, by chat and path.
	ordinals map[string]int
}

// TestKilledWhileUploading kills the daemon at random points of its uploads to a
// real S3 server, behind a proxy that drops, stalls, truncates and refuses.
// Afterwards the bucket and the records agree exactly.
func TestKilledWhileUploading(t *testing.T) {
	rounds, seed := fromEnv(t, "MEDIA_SANDBOX_KILLS", kills), fromEnv(t, "MEDIA_SANDBOX_SEED", uint64(time.Now().UnixNano()))
	t.Logf("%d kills, MEDIA_SANDBOX_SEED=%d", rounds, seed)
	c := &crashed{
		t: t, r: rand.New(rand.NewPCG(seed, 1)), server: s3test.Start(t),
		chats: []string{"chat-a", "chat-b"}, ordinals: map[string]int{},
	}
	c.faults = newFlaky(t, c.server.Endpoint, seed)
	c.Process = daemontest.Spawn(t, onS3(t, c.server, c.faults.URL), func(cfg *config.Config) {
		cfg.Limits.Memory, cfg.Limits.WarmPython = 512<<20, false
	})
	for _, chat := range c.chats {
		if _, err := c.CreateChat(t.Context(), api.NewChat{ID: chat}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int(rounds) {
		c.write(i)
		c.killSoon()
		c.Again()
		c.checkOrdinals()
	}
	t.Logf("%d requests, faults: %v", c.faults.seen.Load(), c.faults.faults)
	c.faults.calmDown()
	c.Kill() // and with it the long waits before a next attempt
	c.Again()
	c.checkAll()
}

// write starts a command that makes new files of random bytes and changes old
// ones; large ones go up in parts.
func (c *crashed) write(round int) {
	line := fmt.Sprintf("head -c %d /dev/urandom >/outputs/new-%d.bin; head -c %d /dev/urandom >/outputs/changed-%d.bin",
		c.r.IntN(200_000), round, c.r.IntN(100_000), c.r.IntN(4))
	if c.r.IntN(3) == 0 {
		line += fmt.Sprintf("; head -c %d /dev/urandom >/outputs/large-%d.bin", 17<<20+c.r.IntN(8<<20), c.r.IntN(2))
	}
	cmd, err := c.Client.Start(c.t.Context(), c.chats[round%len(c.chats)], api.NewCommand{Shell: line})
	if err != nil {
		c.t.Fatal(err)
	}
	c.commands = append(c.commands, cmd)
}

// killSoon kills the daemon a moment after it has sent some more requests.
func (c *crashed) killSoon() {
	patience := time.After(2 * time.Second) // it may be waiting before its next attempt
	for n := 1 + c.r.IntN(8); n > 0; n-- {
		select {
		case <-c.faults.arrived:
		case <-patience:
			n = 0
		}
	}
	<-time.After(time.Duration(c.r.IntN(30_000)) * time.Microsecond)
	c.Kill()
}

// checkOrdinals finds no path twice, and each where it was before.
func (c *crashed) checkOrdinals() {
	for _, chat := range c.chats {
		cells, err := c.Cells(c.t.Context(), chat)
		if err != nil {
			c.t.Fatal(err)
		}
		seen := make(map[string]int)
		for _, cell := range cells {
			at := chat + "/" + cell.File.Path
			if twice, ok := seen[at]; ok {
				c.t.Errorf("%s is cell #%d and #%d", at, twice, cell.Ordinal)
			}
			seen[at] = cell.Ordinal
			if was, ok := c.ordinals[at]; ok && was != cell.Ordinal {
				c.t.Errorf("%s was cell #%d and is #%d", at, was, cell.Ordinal)
			}
			c.ordinals[at] = cell.Ordinal
		}
		for at, ordinal := range c.ordinals {
			if _, ok := seen[at]; !ok && strings.HasPrefix(at, chat+"/") {
				c.t.Errorf("%s, cell #%d, is gone", at, ordinal)
			}
		}
	}
}

// checkAll waits until all is uploaded and compares bucket, records and files.
func (c *crashed) checkAll() {
	for _, cmd := range c.commands {
		// One that had not started when the daemon died may be lost, and says so.
		cmd, err := c.Wait(c.t.Context(), cmd.Chat, cmd.ID)
		if err != nil || cmd.State != api.StateSucceeded && cmd.State != api.StateLost {
			c.t.Errorf("a command ended as %s (%s), %v", cmd.State, cmd.Reason, err)
		}
	}
	keys := make(map[string]string)
	for _, chat := range c.chats {
		c.checkChat(chat, keys)
	}
	c.checkOrdinals()
	within(c.t, "the bucket's holding what the cells name and nothing else", func() bool {
		listed, err := c.server.Client().ListObjectsV2(c.t.Context(), &awss3.ListObjectsV2Input{Bucket: &c.server.Bucket})
		if err != nil {
			c.t.Fatal(err)
		}
		var orphans []string
		for _, o := range listed.Contents {
			if keys[*o.Key] == "" {
				orphans = append(orphans, *o.Key)
			}
		}
		if len(orphans) > 0 {
			c.t.Logf("%d of %d objects are nobody's: %s", len(orphans), len(listed.Contents), orphans[0])
		}
		return len(listed.Contents) == len(keys) && len(orphans) == 0
	})
	within(c.t, "the end of every upload in parts", func() bool {
		open, err := c.server.Client().ListMultipartUploads(c.t.Context(), &awss3.ListMultipartUploadsInput{Bucket: &c.server.Bucket})
		if err != nil {
			c.t.Fatal(err)
		}
		return len(open.Uploads) == 0
	})
}

// checkChat compares a chat's cells with the sandbox's files and the bucket, and
// notes the keys of their objects.
func (c *crashed) checkChat(chat string, keys map[string]string) {
	cmd, err := c.Client.Start(c.t.Context(), chat, api.NewCommand{Shell: "cd /outputs && sha256sum *"})
	if err == nil {
		cmd, err = c.Wait(c.t.Context(), chat, cmd.ID)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	sums, _ := c.Printed(cmd)
	files := strings.Split(strings.TrimSpace(sums), "\n")
	var cells []api.Cell
	within(c.t, "the upload of every cell of "+chat, func() bool {
		if cells, err = c.Cells(c.t.Context(), chat); err != nil {
			c.t.Fatal(err)
		}
		return !slices.ContainsFunc(cells, func(cell api.Cell) bool { return cell.State != api.CellPublished })
	})
	if len(cells) != len(files) {
		c.t.Errorf("%s has %d files and %d cells", chat, len(files), len(cells))
	}
	for i, cell := range cells {
		if cell.Ordinal != i+1 {
			c.t.Errorf("%s: cell #%d comes after #%d", chat, cell.Ordinal, i)
		}
		if !slices.Contains(files, cell.File.SHA256+"  "+cell.File.Path) {
			c.t.Errorf("%s: cell #%d is not the file %s", chat, cell.Ordinal, cell.File.Path)
		}
		u, err := url.Parse(cell.File.URL)
		if err != nil {
			c.t.Fatal(err)
		}
		key := strings.TrimPrefix(u.Path, "/"+c.server.Bucket+"/")
		keys[key] = cell.File.Path
		if sum := c.objectSum(key); sum != cell.File.SHA256 {
			c.t.Errorf("%s: the object of cell #%d (%s) holds other bytes", chat, cell.Ordinal, cell.File.Path)
		}
	}
}

func (c *crashed) objectSum(key string) string {
	c.t.Helper()
	obj, err := c.server.Client().GetObject(c.t.Context(), &awss3.GetObjectInput{Bucket: &c.server.Bucket, Key: &key})
	if err != nil {
		c.t.Errorf("object %s: %v", key, err)
		return ""
	}
	defer obj.Body.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, obj.Body); err != nil {
		c.t.Errorf("object %s: %v", key, err)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
