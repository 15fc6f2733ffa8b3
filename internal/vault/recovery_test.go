package vault

import (
	"errors"
	"strings"
	"testing"
)

func TestRecoveryCode(t *testing.T) {
	code := NewRecoveryCode()
	if groups := strings.Split(code, "-"); len(groups) != 8 || len(code) != 47 {
		t.Fatalf("%d groups, %d characters", len(groups), len(code))
	}
	plain := strings.ReplaceAll(code, "-", "")
	for _, typed := range []string{
		code, plain, strings.ToLower(code), strings.ReplaceAll(code, "-", " "), " " + code + "\r\n",
		strings.NewReplacer("0", "o", "1", "l").Replace(code), strings.NewReplacer("0", "O", "1", "I").Replace(code),
	} {
		got, err := NormalizeRecovery([]byte(typed))
		if err != nil || string(got) != plain || !IsRecoveryCode([]byte(typed)) {
			t.Errorf("a way to type a code is not understood: %v", err)
		}
	}
	if NewRecoveryCode() == code {
		t.Error("two codes are equal")
	}
}

func TestRecoveryCodeMistyped(t *testing.T) {
	plain := strings.ReplaceAll(NewRecoveryCode(), "-", "")
	bad := []string{"", "correct horse battery", plain[:39], plain + "0", plain[1:] + "é", strings.Repeat("0", 40), strings.Repeat("u", 40)}
	const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZU"
	for i := range plain { // each single character replaced, each pair transposed
		for _, c := range alphabet {
			if byte(c) != plain[i] {
				bad = append(bad, plain[:i]+string(c)+plain[i+1:])
			}
		}
		if i > 0 && plain[i-1] != plain[i] {
			bad = append(bad, plain[:i-1]+plain[i:i+1]+plain[i-1:i]+plain[i+1:])
		}
	}
	for _, b := range bad {
		_, err := NormalizeRecovery([]byte(b))
		if !errors.Is(err, ErrRecoveryCode) || IsRecoveryCode([]byte(b)) {
			t.Fatalf("%d characters were accepted: %v", len(b), err)
		}
		for _, group := range []string{plain[:5], plain[35:]} {
			if strings.Contains(err.Error(), group) {
				t.Fatal("the error shows the code")
			}
		}
	}
}

func FuzzNormalizeRecovery(f *testing.F) {
	seeds := []string{NewRecoveryCode(), strings.ToLower(NewRecoveryCode()), "", "passphrase", strings.Repeat("0", 40)}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		once, err := NormalizeRecovery(b)
		if err != nil {
			return
		}
		twice, err := NormalizeRecovery(once)
		if err != nil || string(once) != string(twice) {
			t.Fatalf("the normal form is not normal: %v", err)
		}
	})
}
