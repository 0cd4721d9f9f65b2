package daemon_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"mediasandbox/daemon/api"
	"mediasandbox/daemon/daemontest"
	"mediasandbox/uploader/s3/s3test"
)

// TestCellsGoToS3 publishes to a real S3 server, which goes away and comes
// back between.
func TestCellsGoToS3(t *testing.T) {
	server := s3test.Start(t)
	d := daemontest.Start(t, onS3(t, server, server.Endpoint))
	cmd := succeeded(t, d, d.Shell("head -c 3000000 /dev/zero | tr '\\0' x >/outputs/big.txt"))
	if len(cmd.Cells) != 1 || cmd.Cells[0].State != api.CellPublished {
		t.Fatalf("cells: %+v", cmd.Cells)
	}
	url := cmd.Cells[0].File.URL
	if !strings.HasPrefix(url, server.Endpoint) || !strings.Contains(url, "/cells/default/") || !strings.Contains(url, "/big.txt?") {
		t.Errorf("URL %s", url)
	}
	res, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || len(body) != 3000000 {
		t.Errorf("the URL gives %s, %d bytes, %v", res.Status, len(body), err)
	}
	if got := content(t, d, 1); len(got) != 3000000 {
		t.Errorf("the API gives %d bytes", len(got))
	}

	server.Kill()
	cmd = succeeded(t, d, d.Shell("echo later >/outputs/later.txt"))
	if len(cmd.Cells) != 1 || cmd.Cells[0].State != api.CellPending {
		t.Errorf("with the store away: %+v", cmd.Cells)
	}
	if err := server.Resume(); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		cell, err := d.Cell(t.Context(), api.DefaultChat, 2)
		if err != nil {
			t.Fatal(err)
		}
		if cell.State == api.CellPublished {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the upload was not tried again")
		}
		<-time.After(50 * time.Millisecond)
	}
	if got := string(content(t, d, 2)); got != "later\n" {
		t.Errorf("the cell holds %q", got)
	}
	if err := d.DeleteChat(t.Context(), api.DefaultChat); err != nil {
		t.Fatal(err)
	}
	within(t, "the removal of the deleted chat's objects", func() bool {
		left, err := server.Client().ListObjectsV2(t.Context(), &awss3.ListObjectsV2Input{Bucket: &server.Bucket})
		if err != nil {
			t.Fatal(err)
		}
		return len(left.Contents) == 0
	})
}
