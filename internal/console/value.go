package console

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// valueFor names the credential that a value is given for, and whether it takes
// the place of one.
type valueFor struct {
	Name   string `json:"name"`
	Rotate bool   `json:"rotate"`
}

func (v valueFor) method() string {
	if v.Rotate {
		return wire.MethodSecretRotate
	}
	return wire.MethodSecretSet
}

// message is what a passkey's answer about the value covers: what it is for, and
// not the value.
func (v valueFor) message(p Page, nonce string) ([]byte, *wire.Error) {
	l, fail := ask[wire.List[wire.Secret]](p, wire.MethodSecretList, wire.Empty{})
	if fail != nil {
		return nil, fail
	}
	i := slices.IndexFunc(l.Items, func(s wire.Secret) bool { return s.Name == v.Name })
	if i < 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "The access file declares no credential of this name.")
	}
	s := l.Items[i]
	return approval.Value{Method: v.method(), Name: s.Name, Kind: s.Kind, Place: s.Place}.Message(nonce), nil
}

// setSecret stores a value. Nothing reads it back.
func (c *Console) setSecret(w http.ResponseWriter, r *http.Request, o *opened) {
	var in struct {
		For     valueFor `json:"for"`
		Value   phrase   `json:"value"`
		Gesture gesture  `json:"gesture"`
	}
	defer func() { in.Gesture.wipe(); clear(in.Value) }()
	if fail := read(r, &in); fail != nil {
		refuse(w, fail)
		return
	}
	raw, err := json.Marshal(wire.SecretSet{Name: in.For.Name, Value: in.Value})
	if err != nil {
		refuse(w, wire.NewError(wire.CodeInternal))
		return
	}
	defer clear(raw)
	keys, proof, fail := in.Gesture.prove(o.page, func(nonce string) []byte { return approval.ProofMessage(in.For.method(), raw, nonce) })
	if fail != nil {
		refuse(w, fail)
		return
	}
	if keys != nil {
		defer keys.Wipe()
	}
	if _, fail = o.page.Ask(in.For.method(), wire.Managed{Request: raw, Proof: proof}); fail == nil && keys != nil {
		c.renew(o, keys)
	}
	done(w, fail)
}

// testAccess says what the access file says to one action. Nothing is sent.
func (c *Console) testAccess(w http.ResponseWriter, r *http.Request, o *opened) {
	var test wire.AccessTest
	fail := read(r, &test)
	if fail != nil {
		refuse(w, fail)
		return
	}
	result, fail := ask[wire.AccessTested](o.page, wire.MethodAccessTest, test)
	if fail != nil {
		refuse(w, fail)
		return
	}
	answer(w, http.StatusOK, result)
}
