package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/sshexec"
	"github.com/yett-broker/yett/internal/wire"
)

type addOptions struct {
	name, origin    string
	private, noTest bool
	valueFD         int

	as             string // http
	paths, methods []string
	header, prefix string

	host, user, key    string // ssh
	port               int
	generate           bool
	hostKeys, commands []string
	keyPassphrase      int
}

// defaultSSHPort is the port of a host of which none is said.
const defaultSSHPort = 22

func newAdd(a *app) *cobra.Command {
	o := addOptions{valueFD: -1, keyPassphrase: -1, port: defaultSSHPort}
	c := &cobra.Command{
		Use:   "add [PRESET]",
		Short: "Add a token or a key, and what agents may ask for with it",
		Long: "Adds a service to what is applied: its credential, the one place it goes to, a capability\n" +
			"that reads, and one that writes and asks you each time. It shows what is added, takes your\n" +
			"proof once for that and for the value, and tries the value by one harmless request of its\n" +
			"own, which is a row like any other. Without PRESET it lists the presets; http is for any\n" +
			"API, ssh for a host.\n\n" +
			"The value is read from the terminal without echo, from --value-fd, or from standard input.\n" +
			"Whatever is not given by a flag is asked for on the terminal.",
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
			all, err := preset.All()
			var words []cobra.Completion
			for _, p := range all {
				words = append(words, cobra.CompletionWithDesc(p.Name, p.Title))
			}
			if err != nil || len(args) > 0 {
				words = nil
			}
			return words, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				if c.Flags().Changed("name") || slices.ContainsFunc(addFlags, c.Flags().Changed) {
					return usageError{errors.New("which preset? yett add lists them")}
				}
				return a.listPresets()
			}
			return a.add(c, args[0], o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.name, "name", "", "the `NAME` of the credential; the preset's own if not given")
	f.StringVar(&o.origin, "origin", "", "http, gitlab, grafana, jira: the one place the token goes to, `https://HOST[:PORT]`")
	f.BoolVar(&o.private, "private", false, "the host's name may lead to a private address")
	f.BoolVar(&o.noTest, "no-test", false, "do not try the value")
	f.IntVar(&o.valueFD, "value-fd", -1, "read the value from file descriptor `N`")
	f.StringVar(&o.as, "as", "", "http: a `WORD` for more that agents may ask for with a token that was added earlier")
	f.StringArrayVar(&o.paths, "path", nil, "http: a `PATH` that agents may ask for; * is one segment, ** the rest; may be repeated")
	f.StringArrayVar(&o.methods, "method", nil, "http: a `METHOD`; others than GET, HEAD and OPTIONS are asked for each time (default GET, HEAD)")
	f.StringVar(&o.header, "header", "", "http: the `HEADER` that carries the token, in place of Authorization: Bearer")
	f.StringVar(&o.prefix, "prefix", "", "http: the `TEXT` before the token in --header")
	f.StringVar(&o.host, "host", "", "ssh: the `HOST`'s name or address, with its port as HOST:PORT if it is not 22")
	f.IntVar(&o.port, "port", defaultSSHPort, "ssh: its `PORT`")
	f.StringVar(&o.user, "user", "", "ssh: the `ACCOUNT` there")
	f.StringVar(&o.key, "key", "", "ssh: the `FILE` of a private key; its passphrase is asked for")
	f.IntVar(&o.keyPassphrase, "key-passphrase-fd", -1, "ssh: read the passphrase of the key, one line, from file descriptor `N`")
	f.BoolVar(&o.generate, "generate-key", false, "ssh: make a new key")
	f.StringArrayVar(&o.hostKeys, "host-key", nil, "ssh: the host's key, as `'TYPE BASE64'` or by its fingerprint SHA256:…; may be repeated")
	f.StringArrayVar(&o.commands, "command", nil, "ssh: a `COMMAND` that is asked for each time; may be repeated")
	return c
}

func (a *app) listPresets() error {
	all, err := preset.All()
	if err != nil {
		return err
	}
	if a.json {
		list := []map[string]any{}
		for _, p := range all {
			list = append(list, map[string]any{"name": p.Name, "title": p.Title, "origin": p.Origin, "self_hosted": p.SelfHosted, "page": p.Page, "scopes": p.Scopes})
		}
		return printJSON(a.stdout, list)
	}
	w := aligned(a.stdout)
	for _, p := range all {
		place := p.Origin
		if place == "" {
			place = "where you say"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", p.Name, p.Title, place)
	}
	w.Flush()
	return a.advise("next: yett add PRESET")
}

// addition is what is about to be added.
type addition struct {
	preset   preset.Preset
	name     string
	tables   []byte
	value    []byte
	generate bool // the value is a key that the broker makes
	hasValue bool // the credential has its value from an earlier addition
	trial    *trialAction
}

// add asks for everything, and only then for the proof.
func (a *app) add(c *cobra.Command, name string, o addOptions) error {
	ctx := c.Context()
	p, ok, err := preset.Find(name)
	if err != nil {
		return err
	}
	if !ok {
		return usageError{fmt.Errorf("there is no preset %q; yett add lists them, and http is for any API", name)}
	}
	if err := checkAddFlags(c, p); err != nil {
		return err
	}
	if err := a.ownDescriptors(map[string]int{"value-fd": o.valueFD, "key-passphrase-fd": o.keyPassphrase}); err != nil {
		return err
	}
	conn, err := a.dialUp(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	d, err := a.prepareAddition(ctx, p, o)
	if err != nil {
		return err
	}
	defer func() { clear(d.value) }()
	change, err := a.whatIsAdded(ctx, conn, d)
	if err != nil {
		return err
	}
	if err := a.valueFor(ctx, &d, change, o.valueFD); err != nil {
		return err
	}
	return a.finishAddition(ctx, conn, d, change)
}

// valueFor gets the value that is to be stored. A credential that was added before
// keeps the one that it has.
func (a *app) valueFor(ctx context.Context, d *addition, change wire.AccessApplied, fd int) (err error) {
	d.hasValue = !slices.Contains(change.Missing, d.name)
	switch {
	case d.hasValue && (d.value != nil || d.generate || fd >= 0):
		return wire.Errorf(wire.CodeBadRequest, "%s has its value already; nothing was changed.", d.name).
			Then("Another value: yett secret rotate " + d.name + ". Other commands: into the access file, which yett access show prints and yett apply takes.")
	case d.hasValue:
		return nil
	case d.value == nil && !d.generate:
		if d.value, err = a.readValue(ctx, *d, fd); err != nil {
			return err
		}
	}
	return checkNewValue(*d)
}

// addFlags are all flags but --name, which goes with every preset.
var addFlags = []string{"no-test", "origin", "private", "value-fd", "as", "path", "method", "header", "prefix",
	"host", "port", "user", "key", "generate-key", "host-key", "command", "key-passphrase-fd"}

// checkAddFlags refuses flags that a preset does not know: an ignored --path
// would be taken for a limit.
func checkAddFlags(c *cobra.Command, p preset.Preset) error {
	known := map[string]bool{"no-test": true, "private": true}
	add := func(names ...string) {
		for _, n := range names {
			known[n] = true
		}
	}
	switch {
	case p.Host:
		add("host", "port", "user", "key", "generate-key", "host-key", "command", "key-passphrase-fd")
	case p.Read == nil && p.Write == nil:
		add("value-fd", "origin", "as", "path", "method", "header", "prefix")
	case p.SelfHosted:
		add("value-fd", "origin")
	default:
		add("value-fd")
		delete(known, "private")
	}
	for _, flag := range addFlags {
		if c.Flags().Changed(flag) && !known[flag] {
			return usageError{fmt.Errorf("the preset %s takes no --%s", p.Name, flag)}
		}
	}
	return nil
}

// dialUp connects to a broker that has its vault open, or says how to come
// there.
func (a *app) dialUp(ctx context.Context) (*client.Conn, error) {
	conn, err := a.dialUnlocked(ctx)
	var fail *wire.Error
	if errors.As(err, &fail) && (fail.Code == wire.CodeUnavailable || fail.Code == wire.CodeLocked) {
		e := *fail
		e.NextStep = "Start and unlock it: yett up."
		return nil, &e
	}
	return conn, err
}

func (a *app) prepareAddition(ctx context.Context, p preset.Preset, o addOptions) (addition, error) {
	switch {
	case p.Host:
		return a.prepareHost(ctx, p, o)
	case p.Read == nil && p.Write == nil:
		return a.prepareAPI(ctx, p, o)
	}
	return a.prepareService(ctx, p, o)
}

// whatIsAdded shows nothing yet. An addition whose value is missing, because
// something went wrong before it was stored, is gone on with.
func (a *app) whatIsAdded(ctx context.Context, conn *client.Conn, d addition) (wire.AccessApplied, error) {
	var r wire.AccessApplied
	err := call(ctx, conn, wire.MethodAccessApply, wire.AccessApply{File: string(d.tables), DryRun: true, Add: true}, nil, &r)
	var fail *wire.Error
	if errors.As(err, &fail) && fail.Code == wire.CodeBadRequest {
		_, problems, _ := strings.Cut(fail.Message, "\n")
		e := wire.Errorf(wire.CodeBadRequest, "It cannot be added:\n%s", lineNumber.ReplaceAllString(problems, ""))
		e.NextStep = "Correct what is named. If it is applied already: yett access show has it, and --name adds it beside."
		if d.preset.Name == "http" && d.preset.As == "" {
			e.NextStep += " To let agents ask for more with the same token: --as WORD."
		}
		return r, e
	}
	if err == nil && r.Difference == "" && !slices.Contains(r.Missing, d.name) {
		return r, wire.Errorf(wire.CodeBadRequest, "%s is added already, and has its value.", d.name).
			Then("Another value: yett secret rotate " + d.name + ". Another account: yett add " + d.preset.Name + " --name NAME.")
	}
	return r, err
}

// lineNumber stands before each problem of a file. The person saw no file here.
var lineNumber = regexp.MustCompile(`(?m)^line \d+: `)

// finishAddition shows the difference, takes the proof and goes through to the
// end.
func (a *app) finishAddition(ctx context.Context, conn *client.Conn, d addition, change wire.AccessApplied) error {
	if !a.json {
		fmt.Fprint(a.stdout, change.Difference)
		if d.trial != nil {
			fmt.Fprintf(a.stdout, "then tried once: %s (--no-test leaves it out)\n", approval.Printable(d.trial.String()))
		}
	}
	if change.Difference != "" {
		if err := a.prove(ctx, conn, wire.MethodAccessApply, wire.AccessApply{File: string(d.tables), Add: true}, nil); err != nil {
			return err
		}
	}
	public, err := "", error(nil)
	if !d.hasValue {
		if public, err = a.storeValue(ctx, conn, d); err != nil {
			return notStored(d.name, err)
		}
	}
	result := addDone{Preset: d.preset.Name, Name: d.name, Difference: change.Difference, PublicKey: public}
	if d.trial != nil {
		t, err := a.tryValue(ctx, conn, d)
		if ctx.Err() != nil {
			return errInterrupted
		}
		if err != nil { // all is stored; what kept the try from being made is said
			t = tried{Message: strings.TrimSuffix(err.Error(), "."), nextStep: "It stays added. Let an agent try it, and look at yett activity."}
		}
		result.Test = &t
	}
	return a.printAdded(ctx, conn, d, result)
}

// storeValue stores the value, or has the broker make one: then it returns the
// public line of it, which the person must let in at the host.
func (a *app) storeValue(ctx context.Context, conn *client.Conn, d addition) (public string, err error) {
	if !d.generate {
		return "", a.prove(ctx, conn, wire.MethodSecretSet, wire.SecretSet{Name: d.name, Value: d.value}, nil)
	}
	var key wire.KeyPublic
	err = a.prove(ctx, conn, wire.MethodKeyGenerate, wire.KeyGenerate{Name: d.name, Type: sshexec.KindED25519}, &key)
	return key.PublicKey, err
}

// notStored says how to go on where only the tables were applied.
func notStored(name string, err error) error {
	var fail *wire.Error
	if !errors.As(err, &fail) {
		return err
	}
	e := *fail
	e.Message = strings.TrimSuffix(e.Message, "; nothing was changed.")
	e.NextStep = "What agents may ask for is applied, the value of " + name + " is not stored. Run the same again with a value that can be used."
	return &e
}
