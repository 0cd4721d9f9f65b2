package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/uploader/s3/s3test"
)

// maxGrowth is by how much a large upload may grow the daemon, in bytes.
const maxGrowth = 100 << 20

// TestHugeOutput publishes a file of 200 MB, or of MEDIA_SANDBOX_HUGE_MB, to a
// real S3 server: the object is the file, and the daemon stays small.
func TestHugeOutput(t *testing.T) {
	size := int64(fromEnv(t, "MEDIA_SANDBOX_HUGE_MB", 200)) << 20
	server := s3test.Start(t)
	p := daemontest.Spawn(t, onS3(t, server, server.Endpoint))
	succeeded(t, p.Daemon, p.Shell("echo small >/outputs/small.txt"))
	before := p.PeakMemory()
	line := fmt.Sprintf("cd /outputs && (head -c 1000000 /dev/urandom; head -c %d /dev/zero; echo end) >huge.bin && sha256sum huge.bin", size)
	cmd := succeeded(t, p.Daemon, p.Shell(line))
	said, _ := p.Printed(cmd)
	want, _, _ := strings.Cut(said, " ")
	var cell api.Cell
	for end := time.Now().Add(5 * time.Minute); cell.State != api.CellPublished; <-time.After(100 * time.Millisecond) {
		var err error
		if cell, err = p.Cell(t.Context(), api.DefaultChat, 2); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(end) {
			t.Fatalf("it was not uploaded: %+v", cell)
		}
	}
	grown := p.PeakMemory() - before
	t.Logf("%d MB, the daemon grew by %d MB", size>>20, grown>>20)
	if grown > maxGrowth {
		t.Errorf("the daemon grew by %d MB", grown>>20)
	}
	r, _, err := p.OpenCell(t.Context(), api.DefaultChat, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != want || cell.File.SHA256 != want || cell.File.Size != size+1000004 {
		t.Errorf("the object is %s, the cell %s of %d bytes, the file %s", got, cell.File.SHA256, cell.File.Size, want)
	}
}
