package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
)

// The EROFS super block begins at byte 1024 with this number, little-endian;
// files are laid out in blocks of this many bytes.
const (
	erofsOffset = 1024
	erofsMagic  = 0xE0F5E1E2
	erofsBlock  = 4096
)

// Verify reads the whole image at path (an EROFS file or its directory) and
// compares it with its manifest.
func Verify(ctx context.Context, path string) (Image, error) {
	image, err := Open(path)
	if err != nil {
		return Image{}, err
	}
	sum, size, err := hashFile(ctx, image.Path)
	if err != nil {
		return Image{}, fmt.Errorf("verify image: %w", err)
	}
	if size != image.Manifest.Image.Size {
		return Image{}, mismatch(image.Path, "it has %d bytes, not %d", size, image.Manifest.Image.Size)
	}
	if sum != image.Manifest.Image.SHA256 {
		return Image{}, mismatch(image.Path, "its SHA-256 is %s, not %s", sum, image.Manifest.Image.SHA256)
	}
	return image, nil
}

// mismatch is the error for an image that is not what its manifest says.
func mismatch(path, format string, args ...any) error {
	return fmt.Errorf("image %s does not match its manifest: %s; rebuild with: sandboxctl image build --force",
		path, fmt.Sprintf(format, args...))
}

// checkShape compares size and magic number with what the manifest promises.
func checkShape(image Image) error {
	file, err := os.Open(image.Path)
	if err != nil {
		return fmt.Errorf("open image: %w; %s --force", err, buildHint)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return fmt.Errorf("open image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return mismatch(image.Path, "it is not a regular file")
	}
	if info.Size() != image.Manifest.Image.Size {
		return mismatch(image.Path, "it has %d bytes, not %d", info.Size(), image.Manifest.Image.Size)
	}
	if info.Size()%erofsBlock != 0 {
		return mismatch(image.Path, "its size is not a multiple of %d", erofsBlock)
	}
	var magic [4]byte
	if _, err := file.ReadAt(magic[:], erofsOffset); err != nil {
		return fmt.Errorf("read image %s: %w", image.Path, err)
	}
	if got := binary.LittleEndian.Uint32(magic[:]); got != erofsMagic {
		return mismatch(image.Path, "it is not an EROFS file system (magic %#08x)", got)
	}
	return nil
}

// hashFile returns the SHA-256 and the size of a file.
func hashFile(ctx context.Context, path string) (sum string, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer file.Close()
	hash := sha256.New()
	size, err = io.CopyBuffer(hash, contextReader{ctx, file}, make([]byte, 1<<20))
	if err != nil {
		return "", 0, fmt.Errorf("hash %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), size, nil
}

// contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
