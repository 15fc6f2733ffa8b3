package broker

import (
	"errors"

	"golang.org/x/crypto/ssh"

	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/vault"
)

// sshWay makes the target of an SSH action, with what leads to it, and the signer
// of its own key. Each jump host gets the signer of its key, lent for as long as
// it takes to read it. A failure is the outcome of an action of which nothing
// was sent.
func (b *Broker) sshWay(open *unlocked, op *operation, secret []byte) (sshexec.Target, ssh.Signer, *outcome) {
	host, _ := open.policy.Host(op.plan.Capability.Host)
	t := sshexec.Target{Address: host.Address.String(), User: host.User, Private: host.Private, Keepalive: host.Keepalive,
		HostKeys: host.HostKeys, HostCAs: host.HostCAs, HostNames: host.HostNames, Revoked: host.Revoked}
	signer, bad := signerOf(open.policy, host.Key, secret)
	if bad != nil {
		return t, nil, bad.outcome()
	}
	for _, h := range open.policy.Way(host.Name) {
		hop, bad, err := b.hop(open.policy, h)
		if err != nil {
			out := b.notLent(op, h.Key, err)
			return t, nil, &out
		}
		if bad != nil {
			return t, nil, bad.outcome()
		}
		t.Via = append(t.Via, hop)
	}
	t.Session = op.session.ID
	return t, signer, nil
}

// hop is a host of a way with the signer of its key. An error says that the key
// was not lent.
func (b *Broker) hop(p *access.Policy, h access.Host) (hop sshexec.Hop, bad *badKey, err error) {
	hop = sshexec.Hop{Name: h.Name, Address: h.Address.String(), User: h.User, Private: h.Private,
		HostKeys: h.HostKeys, HostCAs: h.HostCAs, HostNames: h.HostNames, Revoked: h.Revoked}
	declared, _ := place(p, h.Key)
	err = b.Vault.Use(h.Key, declared, func(secret []byte) error {
		hop.Signer, bad = signerOf(p, h.Key, secret)
		return nil
	})
	return hop, bad, err
}

// badKey is why a stored key cannot be used, and what to do about it.
type badKey struct{ why, next string }

func (k *badKey) outcome() *outcome {
	out := notSent(k.why, k.next)
	return &out
}

// signerOf reads a stored key, with the certificate that the access file has
// for it.
func signerOf(p *access.Policy, name string, secret []byte) (ssh.Signer, *badKey) {
	signer, err := sshexec.ParseKey(secret)
	if err != nil {
		return nil, &badKey{"the stored key " + name + " cannot be used: " + err.Error(), replace(name)}
	}
	cred, _ := p.Credential(name)
	if cred.Certificate == "" {
		return signer, nil
	}
	if signer, err = sshexec.Certify(signer, cred.Certificate); err != nil {
		return nil, &badKey{"the certificate of " + name + " cannot be used: " + err.Error(),
			"The person must put a new certificate into the access file, and run: yett apply"}
	}
	return signer, nil
}

// notLent is the outcome of an action whose credential could not be had.
func (b *Broker) notLent(op *operation, name string, err error) outcome {
	switch {
	case errors.Is(err, vault.ErrMissing):
		return notSent("the credential "+name+" has no value yet", "The person must run: yett secret set "+name)
	case errors.Is(err, vault.ErrLocked):
		return stopped(op.session)
	}
	b.Log.Error("lending a credential", "credential", name, "error", err)
	return notSent("the value of the credential "+name+" could not be opened", replace(name))
}

// sshRefused is what to do about a connection that was not made.
func sshRefused(host access.Host, e *sshexec.Error) string {
	name, letIn := host.Name, "The person must let the key in at the host (authorized_keys of "+host.User+"), or run: yett secret rotate "+host.Key
	if e.Hop != "" {
		name, letIn = e.Hop, "The person must let the key of the host "+e.Hop+" in there (authorized_keys of its user), or rotate it"
	}
	switch e.Code {
	case sshexec.CodeHostKey:
		return "The person must find out whether the key of " + name + " was changed on purpose: yett ssh scan " + name +
			" shows the old and the new one. host_keys in the access file names what is trusted; nothing that an agent does changes it."
	case sshexec.CodeAuth:
		return letIn
	}
	return ""
}

// sshRow is what the record has of a connection besides the result: which way it
// took, and what the host proved itself by.
func sshRow(p *access.Policy, host access.Host, hostKey string) map[string]any {
	row := map[string]any{}
	if hostKey != "" {
		row["host_key"] = hostKey
	}
	var via []string
	for _, h := range p.Way(host.Name) {
		via = append(via, h.String())
	}
	if via != nil {
		row["via"] = via
	}
	return row
}

// cardHost fills in how a card shows a host: the account and the address, the
// keys that it may show, and what leads to it.
func cardHost(p *access.Policy, name string, v *approval.Capability) {
	h, _ := p.Host(name)
	v.Target, v.HostKeys, v.Env = h.String(), cardKeys(h), h.Env
	for _, hop := range p.Way(name) {
		v.Via = append(v.Via, approval.Hop{Target: hop.String(), HostKeys: cardKeys(hop)})
	}
}

func cardKeys(h access.Host) []string {
	var keys []string
	for _, k := range h.HostKeys {
		keys = append(keys, access.Fingerprint(k))
	}
	for _, k := range h.HostCAs {
		keys = append(keys, "certified by "+access.Fingerprint(k))
	}
	return keys
}
