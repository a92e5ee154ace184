//go:build tool

// The conformance tests for HTTP/2, with versions that Debian 12's Go can build.
package tool

import _ "github.com/summerwind/h2spec/cmd/h2spec"
