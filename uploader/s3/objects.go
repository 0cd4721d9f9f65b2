package s3

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	tmtypes "github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"mediasandbox/uploader"
)

// The names under which Meta is kept with an object.
const (
	metaSHA256   = "sha256"
	metaFileName = "file-name"
)

// Put implements uploader.Blobs. An upload in parts that fails, or whose
// context ends, is aborted; what a crash leaves is for AbortUploads.
func (s *Store) Put(ctx context.Context, key string, f *os.File, meta uploader.Meta) (uploader.Object, error) {
	if err := uploader.CheckKey(key); err != nil {
		return uploader.Object{}, err
	}
	sums, err := verify(ctx, f, meta.SHA256)
	if err != nil {
		return uploader.Object{}, fmt.Errorf("store %s: %w", key, err)
	}
	if meta.ContentType == "" {
		meta.ContentType = "application/octet-stream"
	}
	body := io.NewSectionReader(f, 0, sums.size)
	if sums.size <= multipartAbove {
		err = s.putWhole(ctx, key, body, meta, sums)
	} else {
		err = s.putParts(ctx, key, body, meta, sums)
	}
	if err != nil {
		return uploader.Object{}, s.explain("store", key, err)
	}
	return uploader.Object{Key: key, Size: sums.size, Meta: meta, Modified: time.Now().UTC()}, nil
}

// sums are the digests of a file, as S3 wants them.
type sums struct {
	size          int64
	sha256, crc32 string
}

// verify reads f and returns its digests once the SHA-256 is found to match.
func verify(ctx context.Context, f *os.File, want string) (sums, error) {
	sha, crc := sha256.New(), crc32.NewIEEE()
	from := io.NewSectionReader(f, 0, 1<<62)
	buf := make([]byte, 1<<20)
	var size int64
	for {
		if err := ctx.Err(); err != nil {
			return sums{}, err
		}
		n, err := from.Read(buf)
		sha.Write(buf[:n])
		crc.Write(buf[:n])
		size += int64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return sums{}, err
		}
	}
	digest := sha.Sum(nil)
	if got := hex.EncodeToString(digest); got != want {
		return sums{}, fmt.Errorf("contents have the digest %s, not %s: %w", got, want, uploader.ErrChecksum)
	}
	return sums{
		size:   size,
		sha256: base64.StdEncoding.EncodeToString(digest),
		crc32:  base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc.Sum32())),
	}, nil
}

func (s *Store) putWhole(ctx context.Context, key string, body io.Reader, meta uploader.Meta, sums sums) error {
	_, err := s.client.PutObject(ctx, &s3.PutObjectInput{
		Bucket: &s.cfg.Bucket, Key: s.name(key), Body: body,
		ChecksumSHA256:       &sums.sha256,
		ContentType:          &meta.ContentType,
		ContentDisposition:   disposition(meta.FileName),
		Metadata:             metadata(meta),
		Expires:              meta.Expires,
		ServerSideEncryption: types.ServerSideEncryption(s.cfg.SSE),
		SSEKMSKeyId:          optional(s.cfg.KMSKeyID),
		StorageClass:         types.StorageClass(s.cfg.StorageClass),
	})
	return err
}

func (s *Store) putParts(ctx context.Context, key string, body io.Reader, meta uploader.Meta, sums sums) error {
	_, err := s.parts.UploadObject(ctx, &transfermanager.UploadObjectInput{
		Bucket: &s.cfg.Bucket, Key: s.name(key), Body: body,
		ChecksumAlgorithm:    tmtypes.ChecksumAlgorithmCrc32,
		ChecksumType:         tmtypes.ChecksumTypeFullObject,
		ChecksumCRC32:        &sums.crc32,
		ContentType:          &meta.ContentType,
		ContentDisposition:   disposition(meta.FileName),
		Metadata:             metadata(meta),
		Expires:              meta.Expires,
		ServerSideEncryption: tmtypes.ServerSideEncryption(s.cfg.SSE),
		SSEKMSKeyID:          optional(s.cfg.KMSKeyID),
		StorageClass:         tmtypes.StorageClass(s.cfg.StorageClass),
	})
	return err
}

// begun is a client that waits for the answer to the begin of an upload in
// parts when its context ends meanwhile: only with the upload's id, which is in
// that answer, can it be aborted.
type begun struct{ *s3.Client }

func (c begun) CreateMultipartUpload(ctx context.Context, in *s3.CreateMultipartUploadInput, options ...func(*s3.Options)) (*s3.CreateMultipartUploadOutput, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	lasting, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(beginTime, func() { end(context.Cause(ctx)) })
	})()
	return c.Client.CreateMultipartUpload(lasting, in, options...)
}

func optional(v string) *string {
	if v == "" {
		return nil
	}
	return &v
}

// metadata travels in headers, so names are escaped to plain ASCII.
func metadata(meta uploader.Meta) map[string]string {
	m := map[string]string{metaSHA256: meta.SHA256}
	if meta.FileName != "" {
		m[metaFileName] = url.QueryEscape(string(meta.FileName))
	}
	return m
}

// disposition gives a download its name (RFC 6266, RFC 8187).
func disposition(name uploader.Path) *string {
	if name == "" {
		return nil
	}
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r == '/' {
			return '-'
		}
		return r
	}, strings.ToValidUTF8(string(name), "-"))
	return aws.String("inline; filename*=UTF-8''" + strings.ReplaceAll(url.QueryEscape(plain), "+", "%20"))
}

// Open implements uploader.Blobs.
func (s *Store) Open(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error) {
	if err := uploader.CheckKey(key); err != nil {
		return nil, err
	}
	offset = max(offset, 0)
	in := &s3.GetObjectInput{Bucket: &s.cfg.Bucket, Key: s.name(key)}
	switch {
	case length == 0:
		if _, err := s.Stat(ctx, key); err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader("")), nil
	case length > 0:
		in.Range = aws.String("bytes=" + strconv.FormatInt(offset, 10) + "-" + strconv.FormatInt(offset+length-1, 10))
	case offset > 0:
		in.Range = aws.String("bytes=" + strconv.FormatInt(offset, 10) + "-")
	}
	out, err := s.client.GetObject(ctx, in)
	if code(err) == "InvalidRange" {
		return io.NopCloser(strings.NewReader("")), nil
	}
	if err != nil {
		return nil, s.explain("open", key, err)
	}
	return out.Body, nil
}

// Stat implements uploader.Blobs.
func (s *Store) Stat(ctx context.Context, key string) (uploader.Object, error) {
	if err := uploader.CheckKey(key); err != nil {
		return uploader.Object{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.cfg.Bucket, Key: s.name(key)})
	if err != nil {
		return uploader.Object{}, s.explain("stat", key, err)
	}
	name, err := url.QueryUnescape(out.Metadata[metaFileName])
	if err != nil {
		name = out.Metadata[metaFileName] // not written by us
	}
	return uploader.Object{
		Key: key, Size: aws.ToInt64(out.ContentLength), Modified: aws.ToTime(out.LastModified),
		Meta: uploader.Meta{
			ContentType: aws.ToString(out.ContentType), FileName: uploader.Path(name), SHA256: out.Metadata[metaSHA256],
			Expires: expiry(out.ExpiresString),
		},
	}, nil
}

// expiry reads the header that Put wrote; nil when there is none.
func expiry(header *string) *time.Time {
	at, err := http.ParseTime(aws.ToString(header))
	if err != nil {
		return nil
	}
	return &at
}

// Delete implements uploader.Blobs. In a bucket with versions it hides the
// object; the versions are the bucket's own business.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := uploader.CheckKey(key); err != nil {
		return err
	}
	_, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.cfg.Bucket, Key: s.name(key)})
	if err != nil && code(err) != "NoSuchKey" {
		return s.explain("delete", key, err)
	}
	return nil
}

// List implements uploader.Blobs.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[uploader.Object, error] {
	return func(yield func(uploader.Object, error) bool) {
		pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.cfg.Bucket, Prefix: s.name(prefix)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(uploader.Object{}, s.explain("list", prefix, err))
				return
			}
			for _, o := range page.Contents {
				obj := uploader.Object{
					Key:  strings.TrimPrefix(aws.ToString(o.Key), s.cfg.Prefix),
					Size: aws.ToInt64(o.Size), Modified: aws.ToTime(o.LastModified),
				}
				if !yield(obj, nil) {
					return
				}
			}
		}
	}
}

// AbortUploads removes the parts of uploads that began before the given time
// and never ended, under the store's prefix. It is for the start of a daemon:
// its own uploads begin again. It returns how many it removed.
func (s *Store) AbortUploads(ctx context.Context, before time.Time) (int, error) {
	removed := 0
	pages := s3.NewListMultipartUploadsPaginator(s.client, &s3.ListMultipartUploadsInput{Bucket: &s.cfg.Bucket, Prefix: &s.cfg.Prefix})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return removed, s.explain("list uploads of", s.cfg.Prefix, err)
		}
		for _, u := range page.Uploads {
			if !aws.ToTime(u.Initiated).Before(before) {
				continue
			}
			_, err := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.cfg.Bucket, Key: u.Key, UploadId: u.UploadId})
			if err != nil && code(err) != "NoSuchUpload" {
				return removed, s.explain("abort upload of", aws.ToString(u.Key), err)
			}
			removed++
		}
	}
	return removed, nil
}
