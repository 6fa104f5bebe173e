//go:build tools

// Package services names the program that scripts/services-s3.sh builds, so that go.sum pins all of it.
package services

import _ "github.com/versity/versitygw/cmd/versitygw"
