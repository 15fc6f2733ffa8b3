package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/yett-broker/yett/internal/screen"
)

// examples are shown by --help and in the manual, for commands that have none
// beside them. A test reads every line as the command line would.
var examples = map[string]string{
	"up":      "yett up",
	"add":     "yett add github\nyett add gitlab --origin https://gitlab.example.com\nyett add http --name billing --origin https://api.billing.example --path '/v1/invoices/**'\nyett add ssh --host web1.example.net --user deploy",
	"connect": "yett connect\nyett connect claude-code\nyett connect codex --allow\nyett connect zed --remove",

	"approve": "yett approve a_9TVFK1BRYQ3BQFSBKDRSE4SFCMTHQJV1\nyett approve a_9TVFK1BRYQ3BQFSBKDRSE4SFCMTHQJV1 --for 30m",
	"pending": "yett pending\nyett pending --json --passphrase-fd 3 3< phrase",

	"apply":         "yett access show > access.toml\nyett apply access.toml --dry-run\nyett apply access.toml",
	"access test":   "yett access test http:github.read GET /user/repos\nyett access test ssh:web1.status uptime",
	"secret set":    "yett secret set billing\nyett secret set billing < token.txt",
	"secret rotate": "yett secret rotate billing",
	"adopt":         "yett adopt\nyett adopt gh:github.com",

	"vault backup":  "yett vault backup /media/backup/yett-vault",
	"vault restore": "yett stop\nyett vault restore /media/backup/yett-vault",
	"audit verify":  "yett audit verify\nyett audit verify --rows",
	"audit export":  "yett audit export --format csv > rows.csv",
	"operation":     "yett operation show op_06D6ZPFR6936HBWCSDHRK6AV6HKEZ3Y8F5KDJWE2YG",
	"doctor":        "yett doctor\nyett doctor --json",
	"review":        "yett review > review.md\nyett review --matrix",
	"service":       "yett service install\nyett service status",
	"uninstall":     "yett stop\nyett uninstall\nyett uninstall --purge",
}

// withExamples gives commands their examples, and flags defaults that a person
// reads: none for a descriptor that is not given, 1h and not 1h0m0s.
func withExamples(c *cobra.Command) {
	if text := examples[strings.TrimPrefix(c.CommandPath(), "yett ")]; text != "" && c.Example == "" {
		c.Example = "  " + strings.ReplaceAll(text, "\n", "\n  ")
	}
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		switch d, err := time.ParseDuration(f.DefValue); {
		case f.Value.Type() == "int" && f.DefValue == "-1":
			f.DefValue = "0" // which is printed as none
		case f.Value.Type() == "duration" && err == nil && d > 0:
			f.DefValue = screen.Span(d)
		}
	})
	for _, sub := range c.Commands() {
		withExamples(sub)
	}
}
