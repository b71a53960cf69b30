// An issuer and a client of two libraries: go-jose signs and verifies, x/oauth2 sends tokens. JSON in, JSON out.
package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"os"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"golang.org/x/oauth2"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	key := jose.JSONWebKey{Key: must(rsa.GenerateKey(rand.Reader, 2048)), KeyID: "go", Algorithm: "RS256", Use: "sig"}
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: key}, (&jose.SignerOptions{}).WithType("JWT")))
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	out.Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{key.Public()}})
	for {
		var asked struct {
			Claims     json.RawMessage // to sign
			URL, Token string          // to get with it
			Keys       jose.JSONWebKeySet
		}
		must(0, in.Decode(&asked))
		if asked.Claims != nil {
			out.Encode(must(must(signer.Sign(asked.Claims)).CompactSerialize()))
		} else if asked.URL != "" {
			source := oauth2.StaticTokenSource(&oauth2.Token{AccessToken: asked.Token})
			out.Encode(must(oauth2.NewClient(context.Background(), source).Get(asked.URL)).StatusCode)
		} else {
			var claims map[string]any
			must(0, must(jwt.ParseSigned(asked.Token, []jose.SignatureAlgorithm{jose.ES256})).Claims(&asked.Keys, &claims))
			out.Encode(claims)
		}
	}
}
