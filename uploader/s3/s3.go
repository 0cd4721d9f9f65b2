// Package s3 keeps objects in a bucket of any S3-compatible service.
//
// Every upload is verified end to end: the file is read once against its
// SHA-256, and the service checks the bytes it received, by the same SHA-256
// for one request, by the CRC-32 of the parts and of the whole for a multipart
// upload. Start reading at Open and Store.Put.
package s3

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"mediasandbox/uploader"
)

// MaxPresign is the longest time for which S3 signs a URL.
const MaxPresign = 7 * 24 * time.Hour

const (
	// multipartAbove is the size up to which one request carries a file.
	multipartAbove = 16 << 20
	// Parts of partSize, partsAtATime of them in memory at once.
	partSize     = 8 << 20
	partsAtATime = 4
	// abortTime bounds the removal of the parts of an upload that failed.
	abortTime = 30 * time.Second
	// beginTime is how long the answer to the begin of an upload in parts is
	// waited for after its context ended.
	beginTime = 5 * time.Second
)

// Config says where the bucket is.
type Config struct {
	Bucket string
	// Region is us-east-1 when empty.
	Region string
	// Endpoint is the base URL of a service that is not Amazon's.
	Endpoint string
	// PathStyle puts the bucket into the path, not into the host's name.
	PathStyle bool
	// Prefix stands before every key.
	Prefix string
	// PublicBaseURL, when set, is where the bucket is published; URLs are then
	// made from it and not signed.
	PublicBaseURL string
	// PresignExpiry is how long signed URLs hold by default: 24 h when zero, at
	// most 7 d. Temporary credentials may end them sooner.
	PresignExpiry time.Duration
	// SSE is the server-side encryption, "AES256" or "aws:kms"; the service's
	// own choice when empty.
	SSE string
	// KMSKeyID names the key for aws:kms.
	KMSKeyID string
	// StorageClass is the service's own choice when empty.
	StorageClass string
	// AccessKeyID and SecretAccessKey (and SessionToken) are used when set;
	// otherwise the AWS chain finds credentials: environment, shared files,
	// container and instance roles.
	AccessKeyID, SecretAccessKey, SessionToken string
}

// Validate returns an error that names the first field that cannot be right.
func (c Config) Validate() error {
	switch {
	case c.Bucket == "":
		return errors.New("s3: bucket is missing")
	case (c.AccessKeyID == "") != (c.SecretAccessKey == ""):
		return errors.New("s3: access key id and secret access key go together")
	case c.PresignExpiry < 0 || c.PresignExpiry > MaxPresign:
		return fmt.Errorf("s3: presign expiry %v is not between 0 and %v", c.PresignExpiry, MaxPresign)
	case c.SSE != "" && c.SSE != "AES256" && c.SSE != "aws:kms":
		return fmt.Errorf("s3: server-side encryption %q is not known: use AES256 or aws:kms", c.SSE)
	case c.KMSKeyID != "" && c.SSE != "aws:kms":
		return errors.New("s3: a KMS key needs server-side encryption aws:kms")
	case len(c.Prefix) > 200:
		return fmt.Errorf("s3: prefix of %d bytes is longer than 200", len(c.Prefix))
	}
	for name, link := range map[string]string{"endpoint": c.Endpoint, "public base URL": c.PublicBaseURL} {
		u, err := url.Parse(link)
		if link != "" && (err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https")) {
			return fmt.Errorf("s3: %s %q is no http or https URL", name, link)
		}
	}
	return nil
}

// Store is a bucket. It implements uploader.Blobs.
type Store struct {
	cfg     Config
	client  *s3.Client
	presign *s3.PresignClient
	parts   *transfermanager.Client
}

var _ uploader.Blobs = (*Store)(nil)

// Open returns the store. It sends nothing to the service: see Check.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Region == "" {
		cfg.Region = "us-east-1"
	}
	if cfg.PresignExpiry == 0 {
		cfg.PresignExpiry = 24 * time.Hour
	}
	if cfg.Prefix != "" {
		cfg.Prefix = strings.Trim(cfg.Prefix, "/") + "/"
	}
	base, err := awsConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	client := s3.NewFromConfig(base, func(o *s3.Options) {
		o.UsePathStyle = cfg.PathStyle
		if cfg.Endpoint != "" {
			o.BaseEndpoint = aws.String(cfg.Endpoint)
		}
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenSupported
		o.DisableLogOutputChecksumValidationSkipped = true
		o.HTTPClient = httpClient()
		o.Logger = logging.Nop{}
	})
	return &Store{
		cfg:    cfg,
		client: client,
		presign: s3.NewPresignClient(client, s3.WithPresignClientFromClientOptions(func(o *s3.Options) {
			// A browser sends no checksum headers with a link.
			o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		})),
		parts: transfermanager.New(begun{client}, func(o *transfermanager.Options) {
			o.PartSizeBytes = partSize
			o.MultipartUploadThreshold = partSize // only what is larger comes here
			o.Concurrency = partsAtATime
			o.FailTimeout = abortTime
		}),
	}, nil
}

func awsConfig(ctx context.Context, cfg Config) (aws.Config, error) {
	if cfg.AccessKeyID != "" {
		return aws.Config{
			Region:      cfg.Region,
			Credentials: credentials.NewStaticCredentialsProvider(cfg.AccessKeyID, cfg.SecretAccessKey, cfg.SessionToken),
		}, nil
	}
	base, err := config.LoadDefaultConfig(ctx, config.WithRegion(cfg.Region))
	if err != nil {
		return base, fmt.Errorf("s3: find credentials: %w", err)
	}
	return base, nil
}

// httpClient gives up on a service that does not answer.
func httpClient() aws.HTTPClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		t.TLSHandshakeTimeout = 10 * time.Second
		t.ResponseHeaderTimeout = time.Minute
		t.IdleConnTimeout = 30 * time.Second
	})
}

// Check asks the service whether the bucket is there and may be listed.
func (s *Store) Check(ctx context.Context) error {
	_, err := s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: &s.cfg.Bucket, Prefix: &s.cfg.Prefix, MaxKeys: aws.Int32(1),
	})
	if err != nil {
		return s.explain("check", "", err)
	}
	return nil
}

// URL implements uploader.Blobs. An expiry of zero stands for the configured
// one; S3 signs for at most 7 days, whatever is asked.
func (s *Store) URL(ctx context.Context, key string, expiry time.Duration) (string, error) {
	if err := uploader.CheckKey(key); err != nil {
		return "", err
	}
	if s.cfg.PublicBaseURL != "" {
		parts := strings.Split(s.cfg.Prefix+key, "/")
		for i, p := range parts {
			parts[i] = url.PathEscape(p)
		}
		return strings.TrimSuffix(s.cfg.PublicBaseURL, "/") + "/" + strings.Join(parts, "/"), nil
	}
	if expiry <= 0 {
		expiry = s.cfg.PresignExpiry
	}
	req, err := s.presign.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: &s.cfg.Bucket, Key: s.name(key),
	}, s3.WithPresignExpires(min(expiry, MaxPresign)))
	if err != nil {
		return "", s.explain("sign URL of", key, err)
	}
	return req.URL, nil
}

// name is the key within the bucket.
func (s *Store) name(key string) *string { return aws.String(s.cfg.Prefix + key) }
