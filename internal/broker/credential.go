package broker

import (
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/httpexec"
	"github.com/yett-broker/yett/internal/sshexec"
)

// sendable is a credential as the executor puts it into a request. What is
// minted for one is sent as a bearer token.
func sendable(c access.Credential, value []byte) httpexec.Credential {
	out := httpexec.Credential{Kind: c.Kind, Header: c.Header, Prefix: c.Prefix, User: c.User, Parameter: c.Parameter,
		Cookie: c.Cookie, Service: c.Service, Region: c.Region, Secret: value}
	if c.Minted() {
		out.Kind = httpexec.KindBearer
	}
	return out
}

// checkValue says why a value could never be used for a credential, before it
// replaces one that can. The reason never repeats the value.
func checkValue(c access.Credential, value []byte) error {
	switch {
	case c.Kind == access.KindSSHKey:
		_, err := sshexec.ParseKey(value)
		return err
	case c.Kind == access.KindClientSecret || c.Minted():
		return httpexec.CheckMintable(value)
	}
	return sendable(c, value).Check()
}

// valueForm says what the value of a kind of credential is.
func valueForm(kind string) string {
	switch kind {
	case access.KindSSHKey:
		return "Give the whole private key, unencrypted."
	case access.KindBasic:
		return "Give user:password, or the password alone where the access file names the user."
	case access.KindSigV4:
		return "Give ACCESS_KEY_ID:SECRET_ACCESS_KEY, with :SESSION_TOKEN behind it if there is one."
	case access.KindOAuthClient, access.KindClientSecret:
		return "Give the client's secret as it was issued."
	case access.KindOAuthRefresh:
		return "Give the refresh token as it was issued."
	}
	return "Give the token as it was issued."
}
