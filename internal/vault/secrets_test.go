package vault

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestSetUseRotateRemove(t *testing.T) {
	v, m := newVault(t)
	wantErr(t, v.SetSecret(api.Name, []byte("12345678"), false), ErrUndeclared)
	wantErr(t, v.RemoveSecret(api.Name), ErrUndeclared)
	_, err := v.Apply([]byte("p"), []Declared{sshKey, api})
	must(t, err)
	fail := func([]byte) error { t.Error("lent"); return nil }
	wantErr(t, v.Use(api.Name, api, fail), ErrMissing)
	wantErr(t, v.Use("nobody", api, fail), ErrMissing)
	wantErr(t, v.SetSecret(api.Name, []byte("12345678"), true), ErrNotSet)
	wantErr(t, v.RemoveSecret(api.Name), ErrNotSet)
	must(t, v.SetSecret(api.Name, []byte("first-value"), false))
	wantErr(t, v.SetSecret(api.Name, []byte("second-value"), false), ErrSet)
	wantValue(t, v, api, "first-value")
	must(t, v.SetSecret(api.Name, []byte("second-value"), true))
	wantValue(t, v, api, "second-value")

	w := loadUnlocked(t, v.dir, m)
	wantValue(t, w, api, "second-value")
	list, err := w.Secrets()
	must(t, err)
	if len(list) != 2 || list[0].Name != "billing" || !list[0].Set || list[0].SetAt.IsZero() || list[0].Place != api.Place ||
		list[1].Name != "deploy-key" || list[1].Set || !list[1].SetAt.IsZero() {
		t.Errorf("secrets %+v", list)
	}
	must(t, v.RemoveSecret(api.Name))
	wantErr(t, v.Use(api.Name, api, fail), ErrMissing)
	must(t, v.SetSecret(api.Name, []byte("third-value"), false))
}

func TestUseOnlyForItsPlace(t *testing.T) {
	v, _ := withSecrets(t)
	for _, d := range []Declared{
		{}, {api.Name, api.Kind, "https://evil.example"}, {api.Name, "header", api.Place},
		{"other", api.Kind, api.Place}, {api.Name, api.Kind, api.Place + "/"}, sshKey,
	} {
		wantErr(t, v.Use(api.Name, d, func([]byte) error { t.Error("lent"); return nil }), ErrPlace)
	}
	// If the comparison were missing, the seal would still refuse: a value that
	// was moved to another entry inside the payload does not open.
	c := v.open.content.clone()
	c.find(api.Name).Place = "https://evil.example"
	moved := Declared{api.Name, api.Kind, "https://evil.example"}
	_, err := v.open.openValue(moved, c.find(api.Name).Sealed)
	wantErr(t, err, ErrDamaged)
	// Fields cannot run into each other.
	a, b := Declared{"ab", "c", "d"}, Declared{"a", "bc", "d"}
	if bytes.Equal(a.associated(), b.associated()) {
		t.Error("two places have one associated data")
	}
}

func TestLentBytesAreWiped(t *testing.T) {
	v, _ := withSecrets(t)
	var kept []byte
	boom := errors.New("boom")
	wantErr(t, v.Use(api.Name, api, func(s []byte) error { kept = s; return boom }), boom)
	if !bytes.Equal(kept, make([]byte, len(kept))) || len(kept) == 0 {
		t.Error("the value outlives the call")
	}
	func() {
		defer func() { _ = recover() }()
		_ = v.Use(api.Name, api, func(s []byte) error { kept = s; panic("in the borrower") })
	}()
	if !bytes.Equal(kept, make([]byte, len(kept))) {
		t.Error("the value outlives a panic")
	}
	// A borrower may lock the vault and keeps its value until it returns.
	must(t, v.Use(api.Name, api, func(s []byte) error {
		v.Lock()
		if string(s) != "token-0123456789" {
			t.Error("locking took a value from its borrower")
		}
		return nil
	}))
}

func TestH14_OneNewlineDropped(t *testing.T) {
	for given, want := range map[string]string{
		"token-123\n": "token-123", "token-123\r\n": "token-123", "token-123": "token-123", "tok en-123": "tok en-123",
		"pässwörd": "pässwörd",
	} {
		v, _ := newVault(t)
		_, err := v.Apply(nil, []Declared{api})
		must(t, err)
		must(t, v.SetSecret(api.Name, []byte(given), false))
		wantValue(t, v, api, want)
	}
}

func TestH14_UncleanRefused(t *testing.T) {
	v, _ := newVault(t)
	_, err := v.Apply(nil, []Declared{api, sshKey})
	must(t, err)
	const tok = "S3CRET-tok"
	for given, says := range map[string]string{
		tok + "\n\n":         "a line break at its end",
		tok + "\r\n\r\n":     "a line break at its end",
		tok + "\r":           "a line break at its end",
		"\n" + tok:           "a line break at its beginning",
		" " + tok:            "a space at its beginning",
		tok + " \n":          "a space at its end",
		tok + "\t":           "a tab at its end",
		"\ufeff" + tok:       "a byte order mark at its beginning",
		"\xff\xfe" + tok:     "a byte order mark at its beginning",
		tok + "\u00a0":       "a no-break space at its end",
		"\u00a0" + tok:       "a no-break space at its beginning",
		tok + "\u3000":       "a space at its end",
		"\u200b" + tok:       "an invisible character at its beginning",
		tok + "\n" + tok:     "a control character within it",
		tok + "\x00" + tok:   "a control character within it",
		tok + "\x1b[0m":      "a control character within it",
		tok + "\x7f":         "a control character at its end",
		tok + "\u0085" + "x": "a control character within it",
	} {
		err := v.SetSecret(api.Name, []byte(given), false)
		wantErr(t, err, ErrUnclean)
		if err != nil && !strings.HasSuffix(err.Error(), says) {
			t.Errorf("%q: %v", given, err)
		}
		if err != nil && (strings.Contains(err.Error(), "S3CRET") || strings.Contains(err.Error(), "tok")) {
			t.Errorf("the error shows the value: %v", err)
		}
	}
	pem := "-----BEGIN KEY-----\r\nabc\r\n-----END KEY-----\r\n"
	must(t, v.SetSecret(sshKey.Name, []byte(pem), false))
	wantValue(t, v, sshKey, strings.TrimSuffix(pem, "\r\n"))
}

func TestSecretSize(t *testing.T) {
	v, _ := newVault(t)
	_, err := v.Apply(nil, []Declared{api, sshKey})
	must(t, err)
	for _, d := range []Declared{api, sshKey} {
		wantErr(t, v.SetSecret(d.Name, nil, false), ErrTooShort)
		wantErr(t, v.SetSecret(d.Name, []byte("1234567\n"), false), ErrTooShort)
		wantErr(t, v.SetSecret(d.Name, bytes.Repeat([]byte("x"), maxSecret+1), false), ErrTooLong)
		must(t, v.SetSecret(d.Name, []byte("12345678"), false))
	}
}

func TestApplyVoids(t *testing.T) {
	set := func(d Declared, name, kind, place string) Declared {
		if name != "" {
			d.Name = name
		}
		if kind != "" {
			d.Kind = kind
		}
		if place != "" {
			d.Place = place
		}
		return d
	}
	for _, c := range []struct {
		name     string
		declared []Declared
		voided   []string
	}{
		{"nothing changed", []Declared{api, sshKey}, nil},
		{"another origin", []Declared{set(api, "", "", "https://evil.example"), sshKey}, []string{"billing"}},
		{"another kind", []Declared{set(api, "", "header", ""), sshKey}, []string{"billing"}},
		{"a host added to the key", []Declared{api, set(sshKey, "", "", "deploy@web1.example.net:22,deploy@web2.example.net:22")}, nil},
		{"the key is no key any more", []Declared{api, set(sshKey, "", "bearer", "https://evil.example")}, []string{"deploy-key"}},
		{"a token becomes a key", []Declared{set(api, "", "ssh-key", "x@evil.example:22"), sshKey}, []string{"billing"}},
		{"renamed", []Declared{set(api, "invoices", "", ""), sshKey}, []string{"billing"}},
		{"none declared", nil, []string{"billing", "deploy-key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			v, m := withSecrets(t)
			generation := v.Generation()
			voided, err := v.Apply([]byte("second"), c.declared)
			must(t, err)
			if !slices.Equal(voided, c.voided) {
				t.Errorf("voided %v, want %v", voided, c.voided)
			}
			if v.Generation() != generation+1 {
				t.Errorf("%d saves", v.Generation()-generation)
			}
			for _, v := range []*Vault{v, loadUnlocked(t, v.dir, m)} {
				if p, err := v.Policy(); err != nil || string(p) != "second" {
					t.Errorf("policy %q, %v", p, err)
				}
				for _, d := range c.declared {
					want := map[string]string{"billing": "token-0123456789", "deploy-key": "-----BEGIN KEY-----\nabc"}[d.Name]
					if slices.Contains(c.voided, d.Name) || want == "" {
						wantErr(t, v.Use(d.Name, d, func([]byte) error { t.Error("lent"); return nil }), ErrMissing)
					} else {
						wantValue(t, v, d, want)
					}
				}
				wantErr(t, v.Use(sshKey.Name, set(sshKey, "", "", "x@evil.example:22"), func([]byte) error { t.Error("lent"); return nil }), map[bool]error{true: ErrMissing, false: ErrPlace}[len(c.declared) == 0 || slices.Contains(c.voided, sshKey.Name)])
			}
			// What was voided does not come back with the old declaration.
			_, err = v.Apply([]byte("third"), []Declared{api, sshKey})
			must(t, err)
			for _, name := range c.voided {
				d := map[string]Declared{api.Name: api, sshKey.Name: sshKey}[name]
				wantErr(t, v.Use(name, d, func([]byte) error { t.Error("lent"); return nil }), ErrMissing)
			}
		})
	}
}

func TestApplyRefuses(t *testing.T) {
	v, _ := withSecrets(t)
	generation := v.Generation()
	for _, bad := range [][]Declared{
		{api, api}, {{"", "bearer", "x"}}, {{"a", "", "x"}}, {{"a", "bearer", "\xff"}}, {{"a", strings.Repeat("x", maxField+1), ""}},
	} {
		if _, err := v.Apply([]byte("x"), bad); err == nil {
			t.Errorf("%v was applied", bad)
		}
	}
	_, err := v.Apply(make([]byte, maxPolicy+1), nil)
	wantErr(t, err, ErrTooLarge)
	if v.Generation() != generation {
		t.Error("a refused policy was saved")
	}
	wantValue(t, v, api, "token-0123456789")
}

func TestPolicyAndLedgerHead(t *testing.T) {
	v, m := newVault(t)
	if p, err := v.Policy(); err != nil || p != nil {
		t.Errorf("a policy before any: %q, %v", p, err)
	}
	if h, err := v.LedgerHead(); err != nil || h != nil {
		t.Errorf("a head before any: %q, %v", h, err)
	}
	_, err := v.Apply(nil, nil)
	must(t, err)
	must(t, v.SetLedgerHead([]byte("head 7")))
	w := loadUnlocked(t, v.dir, m)
	if p, err := w.Policy(); err != nil || p == nil || len(p) != 0 {
		t.Errorf("an empty policy reads as %v, %v", p, err)
	}
	if h, err := w.LedgerHead(); err != nil || string(h) != "head 7" {
		t.Errorf("head %q, %v", h, err)
	}
}

// TestHolds: only the very same value is the same, with or without the newline
// that a pipe adds.
func TestHolds(t *testing.T) {
	v, _ := newVault(t)
	_, err := v.Apply([]byte("p"), []Declared{api})
	must(t, err)
	must(t, v.SetSecret(api.Name, []byte("a-token-of-some-length\n"), false))
	for value, want := range map[string]bool{"a-token-of-some-length": true, "a-token-of-some-length\n": true, "a-token-of-some-lengtH": false, "a-token": false, "": false} {
		if got := v.Holds(api.Name, []byte(value)); got != want {
			t.Errorf("%q: %t", value, got)
		}
	}
	if v.Holds("nothing", []byte("a-token-of-some-length")) {
		t.Error("a secret that is not there has a value")
	}
	v.Lock()
	if v.Holds(api.Name, []byte("a-token-of-some-length")) {
		t.Error("a locked vault tells")
	}
}
