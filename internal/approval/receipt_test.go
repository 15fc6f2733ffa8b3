package approval_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/yetttest"
)

func receiptOf(t testing.TB, a *yetttest.Authenticator) []byte {
	t.Helper()
	return receiptFor(t, a, `{"approval_id":"a_1"}`)
}

func receiptFor(t testing.TB, a *yetttest.Authenticator, card string) []byte {
	t.Helper()
	d := approval.Decided{ApprovalID: "a_1", Digest: approval.Digest([]byte(card)), Document: card, Choice: approval.ChoiceUntil, Until: until.In(time.FixedZone("east", 3600))}
	cards := []string{digest, d.Digest}
	given := a.Get(approval.DecisionsMessage(cards, d.Choice, d.Until, nonce))
	d.Proven = approval.Proven{By: approval.ByPasskey, Nonce: nonce, Cards: cards, Name: "laptop", Origin: a.Origin, Key: a.COSE(), Assertion: &given}
	r, err := approval.NewReceipt(d, until)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestTheCardOfAReceiptSaysOneThing: a card whose members stand twice would be
// read in two ways, so a receipt of it is refused though its signature holds.
func TestTheCardOfAReceiptSaysOneThing(t *testing.T) {
	a := yetttest.NewAuthenticator(origin)
	for card, ok := range map[string]bool{
		`{"approval_id":"a_1"}`:                      true,
		`{"approval_id":"a_0","approval_id":"a_1"}`:  false,
		`{"approval_id":"a_1","Approval_ID":"a_1"}`:  false,
		`{"approval_id": "a_1"}`:                     false,
		`{"approval_id":"a_1"}` + "\n":               false,
		`{"z":{"x":1,"x":2},"approval_id":"a_1"}`:    false,
		`{"approval_id":"a_1","z":[{"x":1,"x":2}]}`:  false,
		`{"approval_id":"a_1","z":{"x":1,"y":[{}]}}`: true,
	} {
		if _, err := approval.ParseReceipt(receiptFor(t, a, card)); (err == nil) != ok {
			t.Errorf("%s: %v", card, err)
		}
	}
}

// TestReceiptsSayOneThing: a receipt is read back as it is, and with anything
// that matters changed in it it is refused.
func TestReceiptsSayOneThing(t *testing.T) {
	a := yetttest.NewAuthenticator(origin)
	text := string(receiptOf(t, a))
	if r, err := approval.ParseReceipt([]byte(text)); err != nil || r.Fingerprint != a.Passkey().Fingerprint() {
		t.Fatalf("%+v %v", r, err)
	}
	other := string(receiptOf(t, yetttest.NewAuthenticator(origin)))
	member := func(text, name string) string {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		return string(m[name])
	}
	for what, change := range map[string][2]string{
		"another card":        {`a_1\"`, `a_2\"`},
		"another card's name": {`"approval_id":"a_1"`, `"approval_id":"a_2"`},
		"another digest":      {`"digests":["5f`, `"digests":["5e`},
		"another choice":      {`"choice":"until"`, `"choice":"once"`},
		"another end":         {`"until":"2026`, `"until":"2027`},
		"no end":              {`"until":"2026-11-30T21:00:00Z"`, `"until":null`},
		"another nonce":       {`"nonce":"p_9`, `"nonce":"p_8`},
		"another origin":      {origin, origin + "1"},
		"another party":       {`"relying_party":"localhost"`, `"relying_party":"example"`},
		"another key":         {member(text, "public_key"), member(other, "public_key")},
		"another fingerprint": {member(text, "public_key_sha256"), member(other, "public_key_sha256")},
		"another PEM":         {member(text, "public_key_pem"), member(other, "public_key_pem")},
		"another challenge":   {member(text, "challenge"), `"AAAA"`},
		"another assertion":   {member(text, "assertion"), member(other, "assertion")},
		"another format":      {`"format":1`, `"format":2`},
		"something unknown":   {`"format":1`, `"format":1,"more":1`},
		"a member twice":      {`"format":1`, `"format":1,"format":1`},
		"one of two choices":  {`"choice":"until"`, `"choice":"deny","choice":"until"`},
		"one of two, inside":  {`"credential_id":`, `"credential_id":"AAAA","credential_id":`},
		"another case":        {`"choice":"until"`, `"Choice":"until"`},
		"both cases":          {`"choice":"until"`, `"choice":"until","Choice":"once"`},
		"another form of end": {`"until":"2026-11-30T21:00:00Z"`, `"until":"2026-11-30T22:00:00+01:00"`},
		"a missing end":       {`"until":"2026-11-30T21:00:00Z",`, ``},
		"something behind it": {`}`, `}`},
	} {
		changed := strings.Replace(text, change[0], change[1], 1)
		if what == "something behind it" {
			changed = text + "{}"
		}
		if changed == text {
			t.Errorf("%s: there is no %s", what, change[0])
		}
		if _, err := approval.ParseReceipt([]byte(changed)); !errors.Is(err, approval.ErrReceipt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestReceiptsAreOfSignaturesOnly(t *testing.T) {
	const card = `{"approval_id":"a_1"}`
	d := approval.Decided{Digest: approval.Digest([]byte(card)), Document: card, Choice: approval.ChoiceOnce, Proven: approval.Proven{By: approval.ByPassphrase}}
	if _, err := approval.NewReceipt(d, until); !errors.Is(err, approval.ErrNotSigned) {
		t.Error(err)
	}
}

// TestClicksDecideAboutReadingOnly: never about an unsafe method, SSH, or what
// may have happened already.
func TestClicksDecideAboutReadingOnly(t *testing.T) {
	reads := approval.Capability{Name: "http:x.read", Methods: []string{"GET", "HEAD"}}
	writes := approval.Capability{Name: "http:x.write", Methods: []string{"GET", "POST"}}
	ssh := approval.Capability{Name: "ssh:x", Commands: []string{"uptime"}}
	copying := approval.Capability{Name: "copy:x", Copy: &approval.Copying{Direction: "down"}}
	granting := func(all ...approval.Capability) approval.Card {
		return approval.Card{Granting: approval.Granting{Capabilities: all}}
	}
	action := func(method, command string, all ...approval.Capability) approval.Card {
		c := granting(all...)
		c.Request = &approval.Request{Method: method, Command: command}
		return c
	}
	repeat := action("GET", "", reads)
	repeat.Granting.Note = "the outcome of an equal action is unknown"
	for what, c := range map[string]struct {
		card approval.Card
		ok   bool
	}{
		"a session that reads":   {granting(reads), true},
		"one action that reads":  {action("GET", "", writes), true},
		"a session that writes":  {granting(writes), false},
		"both":                   {granting(reads, writes), false},
		"a session over SSH":     {granting(ssh), false},
		"reading and SSH":        {granting(reads, ssh), false},
		"one action that writes": {action("POST", "", writes), false},
		"a command":              {action("", "uptime", ssh), false},
		"a copy from a host":     {action("", "", copying), false},
		"a session that copies":  {granting(copying), false},
		"an unknown outcome":     {repeat, false},
		"nothing at all":         {granting(), false},
	} {
		if approval.Clickable(c.card) != c.ok {
			t.Errorf("%s: %v", what, !c.ok)
		}
	}
}
