package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/ambient"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/sshconfig"
	"github.com/yett-broker/yett/internal/wire"
)

// adopted is what became of one finding.
type adopted struct {
	Name       string `json:"name"`
	Credential string `json:"credential"`
	Difference string `json:"difference"`
	Removed    bool   `json:"removed"`
	NextStep   string `json:"next_step"`
}

// adopt moves the named ones, and says what is left.
func (a *app) adopt(ctx context.Context, names []string, o adoptOptions) error {
	found, _ := a.ambient(ctx)
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	var done []adopted
	for _, name := range names {
		f, err := pick(found, name)
		if err != nil {
			return err
		}
		d, err := a.adoptOne(ctx, conn, f, o)
		if err != nil {
			return err
		}
		done = append(done, d)
	}
	left, _ := a.ambient(ctx)
	if a.json {
		return printJSON(a.stdout, map[string]any{"adopted": done, "left": len(left)})
	}
	switch len(left) {
	case 0:
		fmt.Fprintln(a.stdout, "None is left that agents of this login can use without Yett.")
	case 1:
		a.advise("1 credential is left that agents of this login can use without Yett: yett adopt shows it")
	default:
		a.advise("%d credentials are left that agents of this login can use without Yett: yett adopt lists them", len(left))
	}
	return nil
}

// adoptOne applies what agents may ask for, stores the value, and only then
// takes it away where it was. Each step that an earlier run took is passed over.
func (a *app) adoptOne(ctx context.Context, conn *client.Conn, f ambient.Finding, o adoptOptions) (adopted, error) {
	d := adopted{Name: f.Name, Credential: o.as}
	if d.Credential == "" {
		d.Credential = credentialName(f)
	}
	tables, err := tablesFor(f, d.Credential, o)
	if err != nil {
		return d, err
	}
	value, err := ambient.Value(f, os.Environ())
	if err != nil {
		return d, fmt.Errorf("taking %s: %w", f.Name, err)
	}
	defer clear(value)
	if d.Difference, err = a.adoptAccess(ctx, conn, f, d.Credential, tables); err != nil {
		return d, err
	}
	if err := a.adoptValue(ctx, conn, f, d.Credential, value); err != nil {
		return d, err
	}
	return d, a.takeAway(ctx, f, value, o, &d)
}

// adoptAccess applies what agents may ask for, where that is not applied yet.
func (a *app) adoptAccess(ctx context.Context, conn *client.Conn, f ambient.Finding, name string, tables []byte) (difference string, err error) {
	var r wire.AccessApplied
	request := wire.AccessApply{File: string(tables), DryRun: true, Add: true}
	if err := call(ctx, conn, wire.MethodAccessApply, request, nil, &r); err != nil {
		return "", err
	}
	difference = r.Difference
	if difference == "" {
		if !a.json {
			fmt.Fprintf(a.stdout, "What agents may ask for with %s is applied already.\n", name)
		}
		return "", nil
	}
	if !a.json {
		fmt.Fprintf(a.stdout, "%s becomes the credential %s:\n%s", f.Name, name, difference)
	}
	request.DryRun = false
	return difference, a.prove(ctx, conn, wire.MethodAccessApply, request, &r)
}

// adoptValue stores the value, unless the credential has it already: then this
// goes on where an earlier run was interrupted.
func (a *app) adoptValue(ctx context.Context, conn *client.Conn, f ambient.Finding, name string, value []byte) error {
	var kept wire.SecretKept
	err := a.prove(ctx, conn, wire.MethodSecretSet, wire.SecretSet{Name: name, Value: value, Keep: true}, &kept)
	var fail *wire.Error
	switch {
	case errors.As(err, &fail) && strings.Contains(fail.NextStep, "secret rotate"):
		return wire.Errorf(fail.Code, "%s has another value already; %s stays where it is.", name, f.Name).
			Then("Replace that value with this one: yett secret rotate " + name + ". Or adopt this one under a name of its own: --as.")
	case err != nil:
		return err
	case a.json:
	case kept.There:
		fmt.Fprintf(a.stdout, "%s has this very value already.\n", name)
	default:
		fmt.Fprintf(a.stdout, "%s has its value.\n", name)
	}
	return nil
}

// takeAway removes the original if the person says so. It is stored by now,
// so what goes wrong here is told as a next step.
func (a *app) takeAway(ctx context.Context, f ambient.Finding, value []byte, o adoptOptions, d *adopted) error {
	d.NextStep = signOut(f) + " Then make a new one at the issuer: yett secret rotate " + d.Credential + "."
	if f.Kind == ambient.KindPrivateKey {
		d.NextStep = signOut(f) + " ssh itself cannot use it any more then."
	}
	remove := o.remove
	if !remove && !o.keep && !a.json && a.passFD < 0 {
		answer, err := ask(ctx, "Take it away from "+placeOf(f)+"? No copy is kept. [y/N] ", false)
		if err != nil {
			return err
		}
		remove = strings.EqualFold(strings.TrimSpace(string(answer)), "y")
	}
	if remove {
		if err := ambient.Remove(f, value); err == nil {
			d.Removed = true
			d.NextStep = "Backups and the disk may keep the old one. Make a new one at the issuer: yett secret rotate " + d.Credential + "."
		} else {
			a.note("It stays where it is: %s.", approval.Printable(err.Error()))
		}
	}
	d.NextStep = a.here(d.NextStep)
	if !a.json {
		if d.Removed {
			fmt.Fprintf(a.stdout, "It is taken away from %s.\n", placeOf(f))
		}
		fmt.Fprintf(a.stdout, "next: %s\n", d.NextStep)
	}
	return nil
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// credentialName makes a name of Yett's out of a finding's.
func credentialName(f ambient.Finding) string {
	name := f.Name
	for _, general := range []string{"env:", "dotenv:"} {
		name = strings.TrimPrefix(name, general)
	}
	return strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-")
}

// tablesFor are what agents may ask for with it: the preset's where there is
// one, else reading of the paths that the person names.
func tablesFor(f ambient.Finding, name string, o adoptOptions) ([]byte, error) {
	if f.Kind == ambient.KindPrivateKey {
		return serverTables(f, name, o)
	}
	if o.host != "" {
		return nil, usageError{errors.New("--host is for an SSH key")}
	}
	p, known, err := preset.Find(f.Service)
	if err != nil {
		return nil, err
	}
	origin := o.origin
	if origin == "" {
		origin = f.Service
		if known {
			origin = p.Origin
		}
	}
	if known && len(o.paths) == 0 && (o.origin == "" || p.SelfHosted) && origin != "" {
		return p.Tables(name, origin, false), nil
	}
	if origin == "" || len(o.paths) == 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "Where %s goes to, or what agents may read there, is not known.", f.Name).
			Then("Say it: yett adopt " + f.Name + " --origin https://… --path /v1/**")
	}
	own := preset.Preset{Kind: "bearer", Read: &preset.Rules{Methods: []string{"GET", "HEAD"}, Paths: o.paths}}
	return own.Tables(name, origin, false), nil
}

// serverTables are for a key: the host is one that ssh knows already.
func serverTables(f ambient.Finding, name string, o adoptOptions) ([]byte, error) {
	if o.origin != "" || len(o.paths) > 0 {
		return nil, usageError{errors.New("--origin and --path are for a token; an SSH key takes --host")}
	}
	user, address, ok := strings.Cut(o.host, "@")
	if !ok || user == "" || address == "" {
		return nil, wire.Errorf(wire.CodeBadRequest, "Which host %s is for is not known.", f.Name).
			Then("Say it: yett adopt " + f.Name + " --host USER@HOST")
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "22")
	}
	keys, err := knownKeys(filepath.Join(filepath.Dir(f.Path), "known_hosts"), address)
	if err != nil {
		return nil, err
	}
	p, _, err := preset.Find("ssh")
	if err != nil {
		return nil, err
	}
	return preset.Server{Name: name, Address: address, User: user, HostKeys: keys, Look: p.Commands}.Tables(), nil
}

// knownKeys are the keys that ssh knows of a host, hashed names included.
func knownKeys(path, address string) ([]string, error) {
	known, err := sshconfig.ReadKnown(path)
	if err != nil {
		return nil, cannotRead(err)
	}
	lines := sshconfig.Lines(known.LookupAddress(address).Keys)
	if len(lines) == 0 {
		return nil, wire.Errorf(wire.CodeBadRequest, "%s has no key of %s.", approval.Printable(path), approval.Printable(address)).
			Then("Connect to it once with ssh and check its fingerprint, or add the host by: yett add ssh")
	}
	return lines, nil
}
