package forge

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Signed reports whether signature, the header X-Hub-Signature-256, is that of
// the body under the secret. The comparison takes the same time wherever they
// differ. An empty secret signs nothing.
func Signed(body []byte, signature string, secret []byte) bool {
	given, isSHA256 := strings.CutPrefix(signature, "sha256=")
	sum, err := hex.DecodeString(given)
	if !isSHA256 || err != nil || len(secret) == 0 {
		return false
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write(body)
	return hmac.Equal(sum, mac.Sum(nil))
}
