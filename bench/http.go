package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/yett-broker/yett/client"
)

// HTTP through the broker beside the same request made directly, in turn:
//
//	pooled   the direct side keeps its connection, as the broker does for GET
//	new      the direct side makes a connection for each request
//
// The broker makes a connection for each unsafe request. So that it makes one for a
// safe one too, the upstream closes the connection after it. Both sides resume
// sessions of TLS where they make connections.
//
// The brokered side ends when the action's result is there and all of its body
// was read back through the socket.

// httpCase is one kind of request.
type httpCase struct {
	name, capability string
	post             int // bytes of a body; 0: GET
	fresh            bool
	size             int64 // of the answer
	calls            int   // of the calls of a round
	direct, brokered []time.Duration
}

// httpUpstream is an upstream in TLS with the certificate that the access file
// then names.
type httpUpstream struct {
	cmd *exec.Cmd
	url string
	ca  string
}

func (b *bench) measureHTTP(rounds, calls int) error {
	up, err := b.startTLSUpstream()
	if err != nil {
		return err
	}
	defer func() { up.cmd.Process.Kill(); up.cmd.Wait() }()
	session, err := b.openHTTPSession(up)
	if err != nil {
		return err
	}
	cases := []*httpCase{
		{name: "GET 1 KiB, pooled", capability: "http:up.all", size: 1 << 10, calls: calls},
		{name: "POST 64 KiB, new", capability: "http:up.all", post: 64 << 10, fresh: true, size: 1 << 10, calls: calls / 3},
		{name: "POST 64 KiB, new / pooled", capability: "http:up.all", post: 64 << 10, size: 1 << 10, calls: calls / 3},
		{name: "download 16 MiB, pooled", capability: "http:up.all", size: 16 << 20, calls: 3},
		{name: "GET 1 KiB over TLS, pooled", capability: "http:tls.all", size: 1 << 10, calls: calls},
		{name: "GET 1 KiB over TLS, new", capability: "http:tls.all", fresh: true, size: 1 << 10, calls: calls / 3},
		{name: "POST 64 KiB over TLS, new", capability: "http:tls.all", post: 64 << 10, fresh: true, size: 1 << 10, calls: calls / 3},
		{name: "POST 64 KiB over TLS, new / pooled", capability: "http:tls.all", post: 64 << 10, size: 1 << 10, calls: calls / 3},
		{name: "download 16 MiB over TLS, pooled", capability: "http:tls.all", size: 16 << 20, calls: 3},
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(up.ca))
	kept := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
	fresh := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, ClientSessionCache: tls.NewLRUClientSessionCache(4)}, DisableKeepAlives: true}}
	for i := range rounds + 1 { // the first round warms up
		for _, c := range cases {
			url, direct := b.url, kept
			if strings.HasPrefix(c.capability, "http:tls") {
				url = up.url
			}
			if c.fresh {
				direct = fresh
			}
			for range max(c.calls, 1) {
				begin := time.Now()
				if err := c.ask(direct, url); err != nil {
					return fmt.Errorf("%s, direct: %w", c.name, err)
				}
				middle := time.Now()
				if err := c.broker(session); err != nil {
					return fmt.Errorf("%s, brokered: %w", c.name, err)
				}
				if i > 0 {
					c.direct, c.brokered = append(c.direct, middle.Sub(begin)), append(c.brokered, time.Since(middle))
				}
			}
		}
	}
	fmt.Println()
	for _, c := range cases {
		fmt.Printf("%.2f×  %s, brokered / direct\n", ratio(median(c.brokered), median(c.direct)), c.name)
	}
	fmt.Println()
	for _, c := range cases {
		for name, all := range map[string][]time.Duration{"direct": c.direct, "brokered": c.brokered} {
			fmt.Printf("%-36s %-9s n=%-5d median %-10v p99 %v\n", c.name, name, len(all), round(median(all)), round(percentile(all, 0.99)))
		}
	}
	return nil
}

func (c *httpCase) path() string {
	path := sizedPath(c.size)
	if c.fresh {
		path += closing
	}
	return path
}

func (c *httpCase) method() string {
	if c.post > 0 {
		return "POST"
	}
	return "GET"
}

func (c *httpCase) ask(direct *http.Client, url string) error {
	r, err := http.NewRequest(c.method(), url+c.path(), bytes.NewReader(make([]byte, c.post)))
	if err != nil {
		return err
	}
	resp, err := direct.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); err != nil || n != c.size {
		return fmt.Errorf("%d bytes: %v", n, err)
	}
	return nil
}

func (c *httpCase) broker(s *client.Session) error {
	ctx := context.Background()
	method, path := c.method(), c.path()
	a := client.Action{Method: &method, Path: &path}
	if c.post > 0 {
		body := strings.Repeat("p", c.post)
		a.Body = &body
	}
	op, err := s.Do(ctx, c.capability, a, "", 30_000)
	if err != nil {
		return err
	}
	var got client.HTTPResult
	if err := json.Unmarshal(op.Result, &got); err != nil || got.Size != c.size {
		return fmt.Errorf("state %s, result %s: %v", op.State, op.Result, err)
	}
	for offset := int64(0); offset < got.Size; {
		piece, err := s.Body(ctx, got.BodyRef, offset, 512<<10)
		if err != nil {
			return err
		}
		offset += int64(len(piece.BytesBase64))
	}
	return nil
}

// openHTTPSession applies capabilities for both upstreams and is granted them.
func (b *bench) openHTTPSession(up *httpUpstream) (*client.Session, error) {
	text := fmt.Sprintf("[credential.up]\nkind = \"bearer\"\norigin = %q\n\n[credential.tls]\nkind = \"bearer\"\norigin = %q\nca = '''\n%s'''\n", b.url, up.url, up.ca)
	text += "\n[capability.\"http:up.read\"]\ncredential = \"up\"\nmethods = [\"GET\"]\npaths = [\"/v1/**\"]\n" // other parts were granted it
	for _, name := range []string{"up", "tls"} {
		text += fmt.Sprintf("\n[capability.\"http:%s.all\"]\ncredential = %q\nmethods = [\"GET\", \"POST\"]\npaths = [\"/v1/**\"]\n", name, name)
	}
	file := filepath.Join(b.dir, "http.toml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	for _, c := range [][]string{{"", "apply", file}, {"a-token-for-measuring", "secret", "set", "tls"}} {
		if _, err := b.yett(c[0], c[1:]...); err != nil {
			return nil, err
		}
	}
	ctx := context.Background()
	conn, err := client.DialHome(ctx, b.home, client.Options{Program: "bench"})
	if err != nil {
		return nil, err
	}
	s, err := conn.OpenSession(ctx, []string{"http:up.all", "http:tls.all"}, "measuring")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, b.approveCard()
}

func (b *bench) startTLSUpstream() (*httpUpstream, error) {
	ca := filepath.Join(b.dir, "ca.pem")
	up := &httpUpstream{cmd: exec.Command(filepath.Join(b.bin, "bench"), "-part", "tlsupstream", ca)}
	up.cmd.Stderr = os.Stderr
	out, err := up.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := up.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := fmt.Fscanln(out, &up.url); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(ca)
	up.ca = string(text)
	return up, err
}

// playTLSUpstream serves what the other upstream does, in TLS, and writes its
// certificate to a file.
func playTLSUpstream(ca string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	raw, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}), 0o600); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("https://" + l.Addr().String())
	s := &http.Server{Handler: http.HandlerFunc(answer), TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{raw}, PrivateKey: key}}}}
	return s.ServeTLS(l, "", "")
}
