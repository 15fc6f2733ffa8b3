package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"golang.org/x/term"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/wire"
)

// showBody writes a body that is kept. An agent's upstream wrote it: on a
// terminal nothing of it may move the cursor or set colours.
func (a *app) showBody(ctx context.Context, id, stream string) error {
	conn, err := a.dialUnlocked(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := a.prove(ctx, conn, wire.MethodActivityRead, wire.Empty{}, nil); err != nil {
		return err
	}
	out := io.Writer(a.stdout)
	if term.IsTerminal(int(a.stdout.Fd())) {
		out = drawn{a.stdout}
	}
	for offset := int64(0); ; {
		var piece wire.OperationBodyResult
		r := wire.OperationShowBody{OperationID: id, Stream: stream, Offset: offset, Limit: wire.MaxBodyChunk}
		if err := call(ctx, conn, wire.MethodOperationShowBody, r, nil, &piece); err != nil {
			return hasNoBody(ctx, conn, id, err)
		}
		if _, err := out.Write(piece.BytesBase64); err != nil {
			return err
		}
		offset += int64(len(piece.BytesBase64))
		if piece.EOF {
			return nil
		}
	}
}

// hasNoBody tells an operation from which nothing ever came from one that is not
// there.
func hasNoBody(ctx context.Context, conn *client.Conn, id string, err error) error {
	var fail *wire.Error
	if !errors.As(err, &fail) || fail.Code != wire.CodeBadRequest {
		return err
	}
	var op wire.OperationShown
	if call(ctx, conn, wire.MethodOperationShow, wire.OperationID{OperationID: id}, nil, &op) != nil || op.IntentRow != 0 {
		return err
	}
	return wire.Errorf(wire.CodeBadRequest, "This operation has no body: nothing was sent for it (%s%s).", printable(op.State), withCode(op.Code)).
		Then("What came of it stands in: yett operation show " + printable(op.OperationID) + ".")
}

func withCode(code string) string {
	if code == "" {
		return ""
	}
	return ", " + printable(code)
}

// drawn writes lines with visible marks for whatever does not draw itself.
type drawn struct{ w io.Writer }

func (d drawn) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		text, ended := strings.CutSuffix(string(line), "\n")
		text = approval.Escape(strings.TrimSuffix(text, "\r"), len(text)*8+1)
		if ended {
			text += "\n"
		}
		if _, err := io.WriteString(d.w, text); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
