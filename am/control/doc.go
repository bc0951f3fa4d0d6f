// Package control is the command line's side of a running application: it finds the application on YARN and speaks Flink's REST API
// with its master. Layer L5; imports yarnrpc/client. It works against any server of that API.
//
// **Source:** Flink 2.3 REST API (rest_v1_dispatcher); asynchronous operations are triggered with an id of the caller's, so that a request
// may be repeated, and polled until they are COMPLETED.
package control
