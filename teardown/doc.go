// Package teardown is the contract of unwind: the names, requests, results and
// error codes that a program needs to have a session finalized, and nothing
// else. It imports the Temporal SDK only, so that another module's workflow can
// use it without pulling in a database or git.
//
// All payloads are plain JSON objects with named fields that are only ever
// added to; a caller in any language can use the names in this package as
// strings.
package teardown
