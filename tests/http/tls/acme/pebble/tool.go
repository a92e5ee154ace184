//go:build tool

// Pebble, with versions that Debian 13's Go can build.
package tool

import _ "github.com/letsencrypt/pebble/v2/cmd/pebble"
