package uploader

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Errors of stores that callers tell apart with errors.Is.
var (
	// ErrNotFound says that the store has no object of that key.
	ErrNotFound = errors.New("no such object")
	// ErrChecksum says that the bytes are not those the digest was made of.
	ErrChecksum = errors.New("checksum does not match")
	// ErrDenied says that the store does not accept the credentials, or does
	// not allow them to do this.
	ErrDenied = errors.New("store denies access")
	// ErrKey says that a key is not well formed.
	ErrKey = errors.New("key is not well formed")
	// ErrNoBucket says that the store itself is not there.
	ErrNoBucket = errors.New("store does not exist")
)

// Retryable says whether an error of a store may pass by itself. The others
// need somebody to change something.
func Retryable(err error) bool {
	for _, e := range []error{ErrNotFound, ErrChecksum, ErrDenied, ErrKey, ErrNoBucket} {
		if errors.Is(err, e) {
			return false
		}
	}
	return err != nil
}

// Meta is what a store keeps with an object.
type Meta struct {
	// ContentType is a media type; application/octet-stream when empty.
	ContentType string `json:"content_type,omitempty"`
	// FileName is what a download is called. It may be any bytes.
	FileName Path `json:"file_name,omitempty"`
	// SHA256 is the digest of the contents in lower-case hex.
	SHA256 string `json:"sha256"`
	// Expires is when nobody will need the object any more; nil is never. A
	// store need not remove it then.
	Expires *time.Time `json:"expires,omitempty"`
}

// Object is a stored file.
type Object struct {
	Key string `json:"key"`
	// Size is in bytes.
	Size int64 `json:"size"`
	Meta
	// Modified is when the object was put.
	Modified time.Time `json:"modified"`
}

// Blobs is a store of objects. Keys are slash-separated; see CheckKey. All
// methods may be called at the same time.
type Blobs interface {
	// Put stores the whole of f, whatever its offset, under key, in place of
	// what was there. It returns once the object is durable. Contents that do
	// not match Meta.SHA256 are not stored: ErrChecksum. Put again with the same
	// arguments is harmless.
	Put(ctx context.Context, key string, f *os.File, meta Meta) (Object, error)
	// Open reads length bytes from offset, or to the end when length is
	// negative. At or behind the end there is nothing to read, which is no
	// error.
	Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Stat returns ErrNotFound when there is no such object.
	Stat(ctx context.Context, key string) (Object, error)
	// Delete removes an object. It is no error when there is none.
	Delete(ctx context.Context, key string) error
	// URL returns where an object can be fetched, for at least expiry where the
	// store limits the time. Whether there is such an object is not checked.
	URL(ctx context.Context, key string, expiry time.Duration) (string, error)
	// List yields the objects whose key begins with prefix, sorted by key. Only
	// Key, Size and Modified are certain to be set.
	List(ctx context.Context, prefix string) iter.Seq2[Object, error]
}

// maxKey is less than S3 allows, to leave room for a store's own prefix.
const maxKey = 800

// CheckKey returns ErrKey unless key is a relative, clean path of valid UTF-8
// without control characters, of at most 800 bytes.
func CheckKey(key string) error {
	control := strings.ContainsFunc(key, unicode.IsControl)
	if key == "" || len(key) > maxKey || !utf8.ValidString(key) || control ||
		path.Clean("/"+key) != "/"+key || key == "." {
		return fmt.Errorf("key %q: %w", Path(key[:min(len(key), maxKey)]), ErrKey)
	}
	return nil
}

// NewKey makes a key that cannot be guessed (128 random bits) and ends with a
// readable form of the file's name. owner, a chat's id, comes first.
func NewKey(owner string, file Path) string {
	var secret [16]byte
	rand.Read(secret[:]) // never fails
	return path.Join(readable(owner), hex.EncodeToString(secret[:]), readable(path.Base(string(file))))
}

// maxReadable bounds a readable name, in bytes.
const maxReadable = 120

// readable keeps letters, digits and a few marks, so that the name needs little
// escaping anywhere; the extension survives.
func readable(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || strings.ContainsRune("._-+", r)) {
			return r
		}
		return '-'
	}, name)
	clean = strings.TrimLeft(clean, ".-")
	ext := path.Ext(clean)
	if len(ext) > 16 {
		ext = ""
	}
	stem := strings.TrimSuffix(clean, ext)
	for len(stem)+len(ext) > maxReadable {
		_, size := utf8.DecodeLastRuneInString(stem)
		stem = stem[:len(stem)-size]
	}
	if stem+ext == "" {
		return "file"
	}
	return stem + ext
}
