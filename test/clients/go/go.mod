module example.com/client

go 1.24

require (
	github.com/go-jose/go-jose/v4 v4.1.1
	golang.org/x/oauth2 v0.30.0
)

require golang.org/x/crypto v0.39.0 // indirect
