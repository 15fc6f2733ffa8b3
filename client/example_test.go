package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/yett-broker/yett/client"
)

// A program asks for access, a person approves it, and the program reads one
// document with a credential that it never sees.
func Example() {
	ctx := context.Background()
	conn, err := client.Dial(ctx, client.Options{Program: "nightly-report", Version: "1.4"})
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()
	session, err := conn.OpenSession(ctx, []string{"http:billing.read"}, "the nightly report")
	if err != nil {
		log.Fatal(err)
	}
	state := session.Opened()
	for state.Pending != nil { // the card waits for ten minutes
		fmt.Fprintf(os.Stderr, "Approve the card %q: yett approve %s --for 1h\n", state.Pending.Tag, state.Pending.ApprovalID)
		if state, err = session.Wait(ctx, client.MaxWaitMS); err != nil {
			log.Fatal(err)
		}
	}
	if len(state.Capabilities) == 0 {
		log.Fatalf("not granted: %s", state.Reason.Message)
	}

	get, path := "GET", "/v1/invoices"
	op, err := session.Do(ctx, "http:billing.read", client.Action{Method: &get, Path: &path}, "", client.MaxWaitMS)
	for err == nil && (op.State == client.Queued || op.State == client.Executing) {
		op, err = session.Get(ctx, op.OperationID, client.MaxWaitMS)
	}
	if err != nil {
		log.Fatal(err)
	}
	if op.State != client.Completed {
		log.Fatalf("%s: %s", op.State, op.Reason.Message)
	}
	var answer client.HTTPResult
	if err := json.Unmarshal(op.Result, &answer); err != nil {
		log.Fatal(err)
	}
	for offset := int64(0); offset < answer.Size; {
		piece, err := session.Body(ctx, answer.BodyRef, offset, 256<<10)
		if err != nil {
			log.Fatal(err)
		}
		os.Stdout.Write(piece.BytesBase64) // decoded already
		offset += int64(len(piece.BytesBase64))
	}
}

// Three kinds of failure need three answers: a refusal has a code and a next
// step, a channel that ended may have lost an outcome, and everything else
// means that nothing was asked.
func ExampleError() {
	act := func(*client.Session) error { return nil } // some action
	err := act(nil)

	var refused *client.Error
	var closed *client.ClosedError
	switch {
	case errors.Is(err, &client.Error{Code: "locked"}):
		fmt.Println("wait until the person has unlocked Yett")
	case errors.As(err, &refused):
		fmt.Println(refused.Message, refused.NextStep)
	case errors.As(err, &closed) && closed.Sent:
		fmt.Println("it may have happened: ask for the operation on a new channel, do not repeat it")
	case err != nil:
		fmt.Println("there is no broker, or it did not prove itself:", err)
	}
}

// An idempotency key makes a repeat safe: the same process gets the operation
// that it began before, also after a new session or a restart of the broker.
func ExampleSession_Do() {
	invoice := func(ctx context.Context, session *client.Session) (client.Operation, error) {
		post, path, body := "POST", "/v1/invoices", `{"customer":7}`
		return session.Do(ctx, "http:billing.write", client.Action{Method: &post, Path: &path, Body: &body}, "invoice-2026-11-7", client.MaxWaitMS)
	}
	_ = invoice
}
