// A storage service behind the sidecar, in Go, without packages: says who the caller is.
//
//	PORT=9000 go run .
//
// It believes the identity headers because nothing but the sidecar can reach it: it listens on loopback.
package main

import (
	"encoding/json"
	"errors"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
)

// Caller is who a request speaks for.
type Caller struct {
	Account   string `json:"account"`
	AccessKey string `json:"accessKey"`
	TokenID   string `json:"tokenId"`
	ExpiresAt int64  `json:"expiresAt"`
}

var errNotAuthenticated = errors.New("the request did not come through the sidecar with a token")

// callerOf reads the identity headers.
func callerOf(header http.Header) (*Caller, error) {
	one := func(name string) (string, error) {
		values := header.Values(name)
		if len(values) != 1 {
			return "", errNotAuthenticated
		}
		// Percent-encoded UTF-8. Not QueryUnescape: a + is a plus.
		return url.PathUnescape(values[0])
	}
	account, err := one("X-Authenticated-Account-Id")
	if err != nil {
		return nil, err
	}
	accessKey, err := one("X-Authenticated-Access-Key")
	if err != nil {
		return nil, err
	}
	tokenID, err := one("X-Authenticated-Token-Id")
	if err != nil {
		return nil, err
	}
	expires, err := one("X-Authenticated-Token-Expires")
	if err != nil {
		return nil, err
	}
	expiresAt, err := strconv.ParseInt(expires, 10, 64)
	if err != nil {
		return nil, err
	}
	return &Caller{account, accessKey, tokenID, expiresAt}, nil
}

func respond(w http.ResponseWriter, r *http.Request) {
	status, body := http.StatusOK, any(nil)
	caller, err := callerOf(r.Header)
	if err == nil {
		body = caller
	} else {
		status = http.StatusForbidden
		body = map[string]string{"code": "NotAuthenticated", "message": "This service is reached through the sidecar."}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
	// The same id is in the sidecar's log and in the client's response. JSON keeps any name on one line.
	logLine(map[string]any{"msg": "request", "requestId": r.Header.Get("X-Request-Id"), "status": status, "caller": caller})
}

func logLine(fields map[string]any) {
	_ = json.NewEncoder(os.Stdout).Encode(fields)
}

func main() {
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	logLine(map[string]any{"msg": "listening", "port": listener.Addr().(*net.TCPAddr).Port})
	// Not http.ServeMux: it redirects paths with // or dots, which are good names of objects.
	log.Fatal(http.Serve(listener, http.HandlerFunc(respond)))
}
