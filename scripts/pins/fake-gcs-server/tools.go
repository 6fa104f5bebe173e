//go:build tools

// Package services names the program that scripts/services-clouds.sh builds, so that go.sum pins all of it.
package services

import _ "github.com/fsouza/fake-gcs-server"
