package console_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/yetttest"
)

// pictures is where TestEveryView leaves what it saw: make screenshots.
var pictures = flag.String("pictures", "", "write pictures of every view into this directory")

func TestMain(m *testing.M) {
	code := yetttest.Main(m, prepareAxe, preparePictures, prepareStranger)
	endStranger()
	closeBrowser()
	os.Exit(code)
}

// prepareAxe puts the checker of accessibility beside the programs. It runs as
// whoever starts the tests.
func prepareAxe(dir string) error {
	const file = "node_modules/axe-core/axe.min.js"
	if _, err := os.Stat(filepath.Join("node", file)); err != nil {
		npm := exec.Command("npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error")
		npm.Dir = "node"
		if out, err := npm.CombinedOutput(); err != nil {
			return fmt.Errorf("npm ci in internal/console/node could not install axe-core: %w\n%s", err, out)
		}
	}
	text, err := os.ReadFile(filepath.Join("node", file))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "axe.js"), text, 0o644)
}

// preparePictures gives the directory to the account that will write there.
func preparePictures(string) error {
	flag.Parse()
	if *pictures == "" || os.Getuid() != 0 {
		return nil
	}
	return os.Chown(*pictures, yetttest.AccountID, yetttest.AccountID)
}

// init plays an agent in a process of its own: it asks, and waits to be killed.
func init() {
	home := os.Getenv("CONSOLE_AGENT")
	if home == "" {
		return
	}
	if err := playAgent(home, os.Getenv("CONSOLE_ASKS")); err != nil {
		fmt.Fprintln(os.Stderr, "the agent:", err)
		os.Exit(1)
	}
	select {}
}

func playAgent(home, asks string) error {
	loc, err := endpoint.InHome(home)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), yetttest.Patience)
	defer cancel()
	conn, err := client.DialLocation(ctx, loc, client.Options{Program: "claude-code", Version: "2.4.1"})
	if err != nil {
		return err
	}
	if n, ok := strings.CutPrefix(asks, "sessions:"); ok {
		if err := openMany(ctx, loc, n); err != nil {
			return err
		}
		asks = "http:billing.read"
	}
	if many, ok := strings.CutPrefix(asks, "many:"); ok {
		return askMany(ctx, conn, strings.Split(many, ","))
	}
	_, err = conn.OpenSession(ctx, strings.Split(asks, ","), os.Getenv("CONSOLE_PURPOSE"))
	return err
}

// openMany opens sessions that ask for nothing, beside the one of the agent.
func openMany(ctx context.Context, loc endpoint.Location, number string) error {
	n, err := strconv.Atoi(number)
	for i := 0; err == nil && i < n; i++ {
		var conn *client.Conn
		if conn, err = client.DialLocation(ctx, loc, client.Options{Program: "claude-code"}); err == nil {
			_, err = conn.OpenSession(ctx, nil, "")
			kept = append(kept, conn)
		}
	}
	return err
}

var kept []*client.Conn // for as long as the agent lives

// askMany files a hundred cards, each for other capabilities.
func askMany(ctx context.Context, conn *client.Conn, names []string) error {
	session, err := conn.OpenSession(ctx, nil, "")
	for i := 1; err == nil && i <= 100; i++ {
		var wanted []string
		for bit, name := range names {
			if i>>bit&1 == 1 {
				wanted = append(wanted, name)
			}
		}
		_, err = session.RequestAccess(ctx, wanted, fmt.Sprint("question ", i), 0)
	}
	return err
}
