// Package testserver is a module of its own that pins the S3 server the tests
// run against, so that what the server is built from stays out of the
// product's dependencies. The package s3test builds and runs it.
package testserver
