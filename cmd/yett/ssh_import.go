package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/access"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/screen"
	"github.com/yett-broker/yett/internal/sshimport"
	"github.com/yett-broker/yett/internal/wire"
)

type importOptions struct {
	config        string
	knownHosts    []string
	commands      []string
	dry, noKeys   bool
	keyPassphrase int
}

func newSSHImport(a *app) *cobra.Command {
	o := importOptions{keyPassphrase: -1}
	c := &cobra.Command{
		Use: "import [HOST...]", Short: "Take over hosts, their keys and the ways to them from ssh's configuration",
		Long: "Reads ~/.ssh/config and the lists of known hosts, and adds the hosts to what is applied:\n" +
			"address, account, jump hosts, the keys that ssh knows of them, and a capability with commands\n" +
			"that only look. The private keys come into the vault. Without HOST it takes every name that\n" +
			"the configuration has a block for. It takes your proof to read which hosts are applied, shows\n" +
			"the difference and what it cannot take over, each with its line, and asks before it applies\n" +
			"anything. ssh's own files stay as they are.",
		RunE: func(c *cobra.Command, args []string) error { return a.importSSH(c.Context(), args, o) },
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", "", "read this `FILE` in place of ~/.ssh/config")
	f.StringArrayVar(&o.knownHosts, "known-hosts", nil, "read this `FILE` in place of ssh's own lists; may be repeated")
	f.StringArrayVar(&o.commands, "command", nil, "a `COMMAND` that may be run on these hosts and is asked for each time; may be repeated")
	f.BoolVar(&o.dry, "dry-run", false, "show what would be taken over and apply nothing")
	f.BoolVar(&o.noKeys, "no-keys", false, "leave the private keys where they are; yett secret set stores them later")
	f.IntVar(&o.keyPassphrase, "key-passphrase-fd", -1, "read the passphrase of encrypted keys, one line, from file descriptor `N`")
	return c
}

// imported is what yett ssh import --json prints.
type imported struct {
	Hosts      []*sshimport.Host         `json:"hosts"`
	Keys       []*sshimport.Key          `json:"keys"`
	LeftOut    []sshimport.LeftOut       `json:"left_out"`
	NotTaken   []sshimport.NoCounterpart `json:"not_taken_over"`
	Difference string                    `json:"difference"`
	Applied    bool                      `json:"applied"`
}

func (a *app) importSSH(ctx context.Context, names []string, o importOptions) error {
	if err := a.ownDescriptors(map[string]int{"key-passphrase-fd": o.keyPassphrase}); err != nil {
		return err
	}
	p, err := readSSH(o)
	if err != nil {
		return err
	}
	conn, err := a.dialUp(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if a.passFD < 0 {
		a.note("First it reads which hosts are applied already, which takes your proof. Before it applies anything it shows the difference and asks.")
	}
	var file wire.AccessText
	if err := a.prove(ctx, conn, wire.MethodAccessText, wire.Empty{}, &file); err != nil {
		return err
	}
	applied, err := access.Parse([]byte(file.File))
	if err != nil {
		return fmt.Errorf("reading what is applied: %w", err)
	}
	p.Take(applied, names)
	p.FindPrivate(ctx)
	a.printNotTaken(p)
	if len(p.Hosts) == 0 {
		return wire.Errorf(wire.CodeBadRequest, "No new host can be taken over; nothing was changed.").
			Then("Look at what is said of each; yett add ssh adds a host by hand.")
	}
	defer p.Wipe()
	return a.applyImport(ctx, conn, p, []byte(file.File), o)
}

// readSSH reads the configuration and the known hosts of the account.
func readSSH(o importOptions) (*sshimport.Plan, error) {
	from := sshimport.Source{Config: o.config, KnownHosts: o.knownHosts}
	me, err := user.Current()
	switch {
	case err == nil:
		from.Home, from.Account = me.HomeDir, me.Username
	case o.config == "" || len(o.knownHosts) == 0: // files that are named need no account
		return nil, fmt.Errorf("naming the account: %w", err)
	}
	if len(from.KnownHosts) == 0 {
		if from.KnownHosts, err = knownHostsFiles(); err != nil {
			return nil, err
		}
	}
	p, err := sshimport.Read(from)
	switch {
	case errors.Is(err, sshimport.ErrNoConfig):
		return nil, wire.Errorf(wire.CodeBadRequest, "There is no configuration of ssh: %s.", approval.Escape(err.Error(), 300)).
			Then("Name it with --config; or add a host by hand: yett add ssh.")
	case err != nil:
		return nil, cannotRead(err)
	}
	return p, nil
}

// applyImport shows the difference, reads the keys and asks: the proof was given
// for reading, and only then goes for the difference and the keys too.
func (a *app) applyImport(ctx context.Context, conn *client.Conn, p *sshimport.Plan, file []byte, o importOptions) error {
	look, _, err := preset.Find("ssh")
	if err != nil {
		return err
	}
	tables, err := p.Tables(look.Commands, o.commands)
	if err != nil {
		return fmt.Errorf("writing the tables: %w", err)
	}
	if file = bytes.TrimRight(file, "\n"); len(file) > 0 {
		file = append(file, "\n\n"...)
	}
	request := wire.AccessApply{File: string(file) + string(tables), DryRun: true}
	var r wire.AccessApplied
	if err := call(ctx, conn, wire.MethodAccessApply, request, nil, &r); err != nil {
		return err
	}
	if !a.json {
		fmt.Fprint(a.stdout, r.Difference)
	}
	done := imported{Hosts: p.Hosts, Keys: p.Keys, LeftOut: notNil(p.LeftOut), NotTaken: notNil(p.NotTaken), Difference: r.Difference}
	if !o.dry {
		if !o.noKeys {
			if err := a.readKeys(ctx, p, o.keyPassphrase); err != nil {
				return err
			}
		}
		if err := a.agreeToImport(ctx); err != nil {
			return err
		}
		request.DryRun = false
		if err := a.prove(ctx, conn, wire.MethodAccessApply, request, nil); err != nil {
			return err
		}
		done.Applied = true
		for _, k := range p.Keys {
			if k.Value == nil {
				continue
			}
			if err := a.prove(ctx, conn, wire.MethodSecretSet, wire.SecretSet{Name: k.Name, Value: k.Value, Keep: true}, nil); err != nil {
				return notStored(k.Name, err)
			}
		}
	}
	if a.json {
		return printJSON(a.stdout, done)
	}
	a.printImported(p, o)
	return nil
}

// agreeToImport asks, unless the passphrase came by a descriptor: whoever gave
// it there may not be at hand.
func (a *app) agreeToImport(ctx context.Context) error {
	if a.passFD >= 0 {
		return nil
	}
	agreed, err := askYes(ctx, "Apply this? Type yes to go on: ")
	if err != nil || agreed {
		return err
	}
	return wire.Errorf(wire.CodeBadRequest, "Nothing was applied.")
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func (a *app) printImported(p *sshimport.Plan, o importOptions) {
	if o.dry {
		fmt.Fprintln(a.stdout, "Nothing was applied: this is what it would change.")
		return
	}
	fmt.Fprintf(a.stdout, "%s taken over.\n", screen.HowMany(len(p.Hosts), "host"))
	for _, k := range p.Keys {
		if k.Value == nil {
			a.advise("%s has no value yet: yett secret set %s < %s", k.Name, k.Name, approval.Printable(k.File))
			continue
		}
		fmt.Fprintf(a.stdout, "%s has its value. The key still lies in %s, where programs of your account can read it.\n", k.Name, approval.Printable(k.File))
	}
}

// printNotTaken names everything that does not come over.
func (a *app) printNotTaken(p *sshimport.Plan) {
	if a.json {
		return
	}
	for _, l := range p.LeftOut {
		a.note("left out: %s: %s", approval.Printable(l.Host), approval.Printable(l.Why))
	}
	for _, o := range p.NotTaken {
		where := ""
		if o.File != "" {
			where = o.File + ":" + strconv.Itoa(o.Line)
		}
		if len(o.Hosts) > 0 {
			where = strings.TrimPrefix(where+", for "+strings.Join(o.Hosts, " "), ", ")
		}
		a.note("not taken over: %s (%s): %s", approval.Printable(o.Directive), approval.Printable(where), approval.Printable(o.Why))
	}
}

// readKeys reads every key before anything is changed.
func (a *app) readKeys(ctx context.Context, p *sshimport.Plan, fd int) error {
	var phrase []byte
	defer func() { clear(phrase) }()
	for _, k := range p.Keys {
		text, err := readFile(k.File, maxSecret)
		if err != nil {
			return badKey(approval.Printable(k.File), err)
		}
		if k.Value, err = a.openKeyOnce(ctx, k.File, text, fd, &phrase); err != nil {
			return badKey(approval.Printable(k.File), err)
		}
	}
	return nil
}
