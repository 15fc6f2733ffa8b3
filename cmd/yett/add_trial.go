package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/yett-broker/yett/client"
	"github.com/yett-broker/yett/internal/approval"
	"github.com/yett-broker/yett/internal/preset"
	"github.com/yett-broker/yett/internal/wire"
)

// trialAction is the action by which a new value is tried.
type trialAction struct {
	capability string
	action     client.Action
	answer     string // what the body of a good answer has
	anyAnswer  bool   // the action is no known one: only a refused value fails
}

func (t trialAction) String() string {
	if t.action.Command != nil {
		return *t.action.Command
	}
	return *t.action.Method + " " + *t.action.Path
}

// trialOf is the test of a preset.
func trialOf(p preset.Preset, name string) *trialAction {
	if p.Test == nil {
		return nil
	}
	capability, in := p.TestAction(name)
	return &trialAction{capability: capability, answer: p.Test.Answer,
		action: client.Action{Method: &in.Method, Path: &in.Path, Query: in.Query, Headers: in.Headers, Body: in.Body}}
}

// tried is what came of it.
type tried struct {
	OK          bool   `json:"ok"`
	OperationID string `json:"operation_id"`
	Status      int    `json:"status,omitempty"`
	Message     string `json:"message"`

	nextStep string
}

// tryValue takes the ordinary way of an action, with this command as its
// caller: a session of its own, whose card the person's proof approves once,
// and an operation with its intent and outcome.
func (a *app) tryValue(ctx context.Context, conn *client.Conn, d addition) (tried, error) {
	if err := a.prove(ctx, conn, wire.MethodActivityRead, wire.Empty{}, nil); err != nil {
		return tried{}, err
	}
	s, err := conn.OpenSession(ctx, []string{d.trial.capability}, "yett add tries the new value of "+d.name+" once")
	if err != nil {
		return tried{}, fmt.Errorf("opening a session to try the value: %w", err)
	}
	defer s.Close(context.WithoutCancel(ctx))
	if err := a.approveOwn(ctx, conn, s, s.Opened().Pending); err != nil {
		return tried{}, err
	}
	if _, err := s.Wait(ctx, client.MaxWaitMS); err != nil {
		return tried{}, err
	}
	op, err := s.Do(ctx, d.trial.capability, d.trial.action, "", client.MaxWaitMS/2)
	if err == nil && op.Pending == nil && op.State == client.Queued {
		err = errors.New("the action waits behind another one")
	}
	if err == nil && op.Pending != nil {
		if err = a.approveOwn(ctx, conn, s, op.Pending); err == nil {
			op, err = s.Get(ctx, op.OperationID, client.MaxWaitMS)
		}
	}
	if err != nil {
		return tried{}, err
	}
	return judgeTrial(ctx, s, d, op), nil
}

// approveOwn approves a card of this command's own session, and no other.
func (a *app) approveOwn(ctx context.Context, conn *client.Conn, s *client.Session, p *client.Pending) error {
	if p == nil {
		return errors.New("no card was filed for the try")
	}
	card, there, err := cardOf(ctx, conn, p.ApprovalID)
	if err != nil {
		return err
	}
	if !there || card.Card == nil || card.SessionID != s.ID() {
		return errors.New("the card of the try is gone")
	}
	return a.decide(ctx, conn, wire.Approve{ApprovalID: card.ApprovalID, CardDigest: card.CardDigest, Choice: approval.ChoiceOnce})
}

func judgeTrial(ctx context.Context, s *client.Session, d addition, op client.Operation) tried {
	t := tried{OperationID: op.OperationID, nextStep: "It stays added. Another value: yett secret rotate " + d.name + "."}
	if op.State != client.Completed {
		t.Message = "it was not done"
		if op.Reason != nil {
			t.Message = strings.TrimSuffix(op.Reason.Message, ".")
		}
		return t
	}
	var failed client.NotSent
	if json.Unmarshal(op.Result, &failed) == nil && failed.Error != "" {
		t.Message, t.nextStep = failed.Error, "It stays added. Look at place and network; then let an agent try it."
		if failed.NextStep != "" {
			t.nextStep = failed.NextStep
		}
		return t
	}
	if d.trial.action.Command != nil {
		return judgeCommand(op, t)
	}
	return judgeAnswer(ctx, s, d, op, t)
}

func judgeCommand(op client.Operation, t tried) tried {
	var r client.SSHResult
	if err := json.Unmarshal(op.Result, &r); err != nil || r.Exit.Status == nil {
		t.Message = "the command did not end by itself"
		return t
	}
	t.OK = true // the host took the key
	t.Status, t.Message = *r.Exit.Status, fmt.Sprintf("the host took the key; the command ended with %d", *r.Exit.Status)
	return t
}

func judgeAnswer(ctx context.Context, s *client.Session, d addition, op client.Operation, t tried) tried {
	var r client.HTTPResult
	if err := json.Unmarshal(op.Result, &r); err != nil {
		t.Message = "the result cannot be read"
		return t
	}
	t.Status, t.Message = r.Status, fmt.Sprintf("%s answered %d", d.preset.Title, r.Status)
	switch {
	case r.Status == 401 || r.Status == 403:
		t.Message += ": it does not take this value, or not for this"
		return t
	case d.trial.anyAnswer && r.Status < 500, r.Status < 300 && d.trial.answer == "":
		t.OK = true
		return t
	case r.Status >= 300:
		t.nextStep = "It stays added. See what the API says about that path, and let an agent try another."
		return t
	}
	body, err := s.Body(ctx, r.BodyRef, 0, 64<<10)
	if err == nil && strings.Contains(string(body.BytesBase64), d.trial.answer) {
		t.OK = true
		return t
	}
	t.Message += ", but says in its body that it does not take this value"
	return t
}
