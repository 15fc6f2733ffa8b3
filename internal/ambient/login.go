package ambient

import (
	"context"
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// secretName is how variables that hold a secret are called.
var secretName = regexp.MustCompile(`(?i)(token|secret|passw(or)?d|passphrase|api_?key|access_?key|private_?key|credentials?|_pat|_auth|_key|_dsn|database_url)$|^pgpassword$`)

// plainName are names of that kind whose values are paths or public.
var plainName = regexp.MustCompile(`(?i)(public_?key|publishable_?key|_sock|_path|_file|_dir|_key_id)$|^(google_application_credentials)$`)

func tellsSecret(name string) bool {
	return secretName.MatchString(name) && !plainName.MatchString(name)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func isVariable(name string) bool { return variableName.MatchString(name) && len(name) <= maxWord }

// variables looks at names; a value counts only by being there.
func (s *scan) variables(environment []string) {
	var names []string
	for _, kv := range environment {
		name, value, _ := strings.Cut(kv, "=")
		if value != "" && isVariable(name) && tellsSecret(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		s.add(Finding{Name: "env:" + name, Kind: KindVariable, Where: name, Readers: "every program that this shell starts", Service: services()[name],
			Source: "https://man7.org/linux/man-pages/man7/environ.7.html", format: "environment"})
	}
}

// agentTime bounds what an ssh-agent may take.
const agentTime = 2 * time.Second

// agent lists the keys of an ssh-agent. It signs for every program of the
// account.
func (s *scan) agent(ctx context.Context, socket string) {
	ctx, cancel := context.WithTimeout(ctx, agentTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		s.failed(err)
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(agentTime))
	keys, err := agent.NewClient(conn).List()
	if err != nil {
		s.failed(err)
		return
	}
	for _, k := range keys {
		s.add(Finding{Name: "ssh-agent:" + word(k.Comment), Kind: KindAgentKey, Path: socket, Where: word(k.Format) + " " + ssh.FingerprintSHA256(k),
			Readers: "it signs for every program of this account", SignOut: "ssh-add -D", Source: "https://man.openbsd.org/ssh-agent"})
	}
}
