package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yett-broker/yett/client"
)

// Large results on their way to the agent:
//
//	socket      a body that the broker holds → all of it here, by operation.body
//	limit       as many bytes from a process through a bare pipe
//	memory      the most that yett-mcp had resident when an agent had read all
//	            of the body by read_result
//
// The executors cap what they take, so the largest result is the cap.

var resultSizes = []int64{1 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20}

// shimMemory is what yett-mcp may have resident, in KiB.
const shimMemory = 32 << 10

// result is what was measured of one size.
type result struct {
	asked, size  int64
	socket, pipe []time.Duration
	shimKiB      int
}

// measureResults prints the ratios first.
func (b *bench) measureResults(rounds int) error {
	pipe, err := startPiper(filepath.Join(b.bin, "bench"))
	if err != nil {
		return err
	}
	defer pipe.end()
	var all []result
	for _, size := range resultSizes {
		r, err := b.measureResult(pipe, size, rounds)
		if err != nil {
			return fmt.Errorf("a result of %s: %w", bytesText(size), err)
		}
		all = append(all, r)
	}
	fmt.Println()
	for _, r := range all {
		note := ""
		if r.size < r.asked {
			note = fmt.Sprintf("   (%s asked for: cut at the cap)", bytesText(r.asked))
		}
		fmt.Printf("%.2f×  %s of a result by operation.body / through a bare pipe%s\n", ratio(median(r.socket), median(r.pipe)), bytesText(r.size), note)
	}
	most := slices.MaxFunc(all, func(x, y result) int { return x.shimKiB - y.shimKiB })
	fmt.Printf("%.1f MiB at most in yett-mcp while it passes them on          (target below %d)\n\n", float64(most.shimKiB)/1024, shimMemory>>10)
	for _, r := range all {
		fmt.Printf("%-9s by operation.body            n=%-5d median %-10v p99 %-10v yett-mcp %.1f MiB\n", bytesText(r.size), len(r.socket), round(median(r.socket)), round(percentile(r.socket, 0.99)), float64(r.shimKiB)/1024)
		fmt.Printf("%-9s through a bare pipe          n=%-5d median %-10v p99 %v\n", bytesText(r.size), len(r.pipe), round(median(r.pipe)), round(percentile(r.pipe, 0.99)))
	}
	if most.shimKiB >= shimMemory {
		return fmt.Errorf("yett-mcp had %d KiB resident for a result of %s", most.shimKiB, bytesText(most.size))
	}
	return nil
}

func (b *bench) measureResult(pipe *piper, asked int64, rounds int) (result, error) {
	r := result{asked: asked}
	method, path := "GET", sizedPath(asked)
	ctx := context.Background()
	op, err := b.session.Do(ctx, "http:up.read", client.Action{Method: &method, Path: &path}, "", 30_000)
	if err != nil {
		return r, err
	}
	var got client.HTTPResult
	if err := json.Unmarshal(op.Result, &got); err != nil || got.Status != http.StatusOK {
		return r, fmt.Errorf("state %s, result %s: %v", op.State, op.Result, err)
	}
	if r.size = got.Size; r.size != asked && !got.Truncated {
		return r, fmt.Errorf("%d bytes came", r.size)
	}
	for i := range rounds + 1 { // the first round warms up
		begin := time.Now()
		if err := b.readBody(ctx, got); err != nil {
			return r, err
		}
		socket := time.Since(begin)
		begin = time.Now()
		if err := pipe.read(r.size); err != nil {
			return r, err
		}
		if i > 0 {
			r.socket, r.pipe = append(r.socket, socket), append(r.pipe, time.Since(begin))
		}
	}
	r.shimKiB, err = b.readThroughShim(asked, r.size)
	return r, err
}

func (b *bench) readBody(ctx context.Context, r client.HTTPResult) error {
	for offset := int64(0); offset < r.Size; {
		piece, err := b.session.Body(ctx, r.BodyRef, offset, 512<<10)
		if err != nil {
			return err
		}
		offset += int64(len(piece.BytesBase64))
	}
	return nil
}

// piper is this program again: it writes as many bytes on a pipe as it is told.
type piper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader
	buf []byte
}

func startPiper(self string) (*piper, error) {
	p := &piper{cmd: exec.Command(self, "-part", "piper"), buf: make([]byte, 512<<10)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	return p, p.cmd.Start()
}

func (p *piper) end() error {
	p.in.Close()
	return p.cmd.Wait()
}

func (p *piper) read(size int64) error {
	if _, err := fmt.Fprintln(p.in, size); err != nil {
		return err
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(p.out, size), p.buf)
	return err
}

// playPiper is the process behind the bare pipe.
func playPiper() error {
	body := document(resultSizes[len(resultSizes)-1])
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		size, err := strconv.Atoi(strings.TrimSpace(line))
		if err != nil {
			return err
		}
		if _, err := os.Stdout.Write(body[:size]); err != nil {
			return err
		}
	}
}

// document is a body of a size.
func document(size int64) []byte { return bytes.Repeat([]byte("0123456789abcdef"), int(size/16)) }

func sizedPath(size int64) string { return fmt.Sprintf("/v1/size/%d", size) }

// closing ends the path of what is answered once on a connection.
const closing = "/closing"

// answer is the upstreams': /v1/size/N has N bytes, everything else 1 KiB.
func answer(w http.ResponseWriter, r *http.Request) {
	size := int64(1 << 10)
	path, last := strings.CutSuffix(r.URL.Path, closing)
	if last {
		w.Header().Set("Connection", "close")
	}
	if text, ok := strings.CutPrefix(path, "/v1/size/"); ok {
		size, _ = strconv.ParseInt(text, 10, 64)
	}
	io.Copy(io.Discard, r.Body) // what is sent is taken before it is answered
	w.Header().Set("Content-Type", "text/plain")
	w.Write(document(size))
}

func bytesText(n int64) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
