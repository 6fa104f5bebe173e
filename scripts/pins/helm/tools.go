//go:build tools

// Package services names the program that scripts/services-tools.sh builds, so that go.sum pins all of it.
package services

import _ "helm.sh/helm/v3/cmd/helm"
