// A storage service that verifies its caller, in Go without packages: it accepts the signed assertion and ignores the other identity headers.
//
//	PORT=9000 JWKS_URL=http://127.0.0.1:8081/.well-known/jwks.json go run ./assertion
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"
)

var (
	errRefused = errors.New("the assertion is missing or not for this service")
	errNoKeys  = errors.New("the keys cannot be fetched")
)

// keySet caches the sidecar's public keys. An unknown kid, as after a key rotation, is fetched at most every 5 s.
type keySet struct {
	url     string
	mutex   sync.Mutex
	keys    map[string]*ecdsa.PublicKey
	fetched time.Time
	fault   error // of the last fetch
}

var client = http.Client{Timeout: 5 * time.Second}

// find returns errNoKeys where the caller is not at fault.
func (set *keySet) find(kid string) (*ecdsa.PublicKey, error) {
	set.mutex.Lock()
	defer set.mutex.Unlock()
	age := time.Since(set.fetched)
	if (set.keys[kid] == nil && age > 5*time.Second) || age > 10*time.Minute {
		set.fetched = time.Now()
		var keys map[string]*ecdsa.PublicKey
		if keys, set.fault = fetch(set.url); set.fault == nil {
			set.keys = keys
		} else {
			log.Printf("cannot fetch the keys: %v", set.fault)
		}
	}
	if key := set.keys[kid]; key != nil {
		return key, nil
	}
	if set.fault != nil {
		return nil, errNoKeys
	}
	return nil, errRefused
}

func fetch(url string) (map[string]*ecdsa.PublicKey, error) {
	response, err := client.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New(response.Status)
	}
	var set struct {
		Keys []struct{ Kid, Alg, X, Y string }
	}
	if err := json.NewDecoder(response.Body).Decode(&set); err != nil {
		return nil, err
	}
	keys := map[string]*ecdsa.PublicKey{}
	for _, key := range set.Keys {
		if key.Alg == "ES256" {
			keys[key.Kid] = &ecdsa.PublicKey{Curve: elliptic.P256(), X: number(decode(key.X)), Y: number(decode(key.Y))}
		}
	}
	return keys, nil
}

// claims of an assertion; the caller of a request.
type claims struct {
	Issuer    string `json:"iss"`
	Audience  string `json:"aud"`
	Account   string `json:"sub"`
	AccessKey string `json:"client_id"`
	TokenID   string `json:"jti"`
	ExpiresAt int64  `json:"exp"`
}

// verify returns the claims of a compact JWS that is meant for this service.
func (set *keySet) verify(assertion string) (*claims, error) {
	parts := strings.Split(assertion, ".")
	if len(parts) != 3 {
		return nil, errRefused
	}
	var header struct{ Alg, Kid, Typ string }
	if json.Unmarshal(decode(parts[0]), &header) != nil || header.Alg != "ES256" || header.Typ != "upstream-assertion+jwt" {
		return nil, errRefused
	}
	key, err := set.find(header.Kid)
	if err != nil {
		return nil, err
	}
	signature := decode(parts[2])
	digest := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if len(signature) != 64 || !ecdsa.Verify(key, digest[:], number(signature[:32]), number(signature[32:])) {
		return nil, errRefused
	}
	var caller claims
	if json.Unmarshal(decode(parts[1]), &caller) != nil || caller.Account == "" ||
		caller.Issuer != "storage-account-api" || caller.Audience != "storage-upstream" || time.Now().Unix() >= caller.ExpiresAt {
		return nil, errRefused
	}
	return &caller, nil
}

func decode(text string) []byte {
	bytes, _ := base64.RawURLEncoding.DecodeString(text)
	return bytes
}

func number(bytes []byte) *big.Int { return new(big.Int).SetBytes(bytes) }

func main() {
	keys := &keySet{url: os.Getenv("JWKS_URL")}
	respond := func(w http.ResponseWriter, r *http.Request) {
		status, body := http.StatusForbidden, map[string]any{"code": "NotAuthenticated", "message": "This service wants a signed assertion."}
		values := r.Header.Values("X-Authenticated-Assertion")
		if len(values) == 1 {
			c, err := keys.verify(values[0])
			if err == nil {
				status, body = http.StatusOK, map[string]any{"account": c.Account, "accessKey": c.AccessKey, "tokenId": c.TokenID, "expiresAt": c.ExpiresAt}
			} else if errors.Is(err, errNoKeys) {
				status, body = http.StatusServiceUnavailable, map[string]any{"code": "ServiceNotReady", "message": "The caller cannot be verified now. Retry later."}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"msg": "listening", "port": listener.Addr().(*net.TCPAddr).Port})
	log.Fatal(http.Serve(listener, http.HandlerFunc(respond)))
}
