package vault

import "testing"

// TestRenewSecret: a value is replaced only by whoever was lent it, for the place it
// is sealed to, and durably.
func TestRenewSecret(t *testing.T) {
	v, m := withSecrets(t)
	const old, renewed = "token-0123456789", "token-renewed-1"
	must(t, v.RenewSecret(api.Name, api, []byte(old), []byte(renewed)))
	wantValue(t, loadUnlocked(t, v.dir, m), api, renewed) // as another process reads it

	elsewhere := api
	elsewhere.Place = "https://evil.example"
	for _, c := range []struct {
		d          Declared
		old, value string
		want       error
	}{
		{api, old, "token-renewed-2", ErrReplaced},
		{elsewhere, renewed, "token-renewed-2", ErrPlace},
		{api, renewed, "short", ErrTooShort},
		{api, renewed, "token\nrenewed", ErrUnclean},
	} {
		wantErr(t, v.RenewSecret(api.Name, c.d, []byte(c.old), []byte(c.value)), c.want)
	}
	wantValue(t, v, api, renewed)
	must(t, v.RemoveSecret(api.Name))
	wantErr(t, v.RenewSecret(api.Name, api, []byte(renewed), []byte("token-renewed-2")), ErrReplaced)
	v.Lock()
	wantErr(t, v.RenewSecret(api.Name, api, []byte(renewed), []byte("token-renewed-2")), ErrLocked)
}
