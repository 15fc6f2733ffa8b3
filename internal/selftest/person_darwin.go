package selftest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/yett-broker/yett/internal/macos"
	"github.com/yett-broker/yett/internal/macos/system"
)

// personTime is how long the person has to answer a prompt.
const personTime = time.Minute

// ofPerson are the checks of what asks the person.
func ofPerson() []trial {
	return []trial{
		{"keychain: answers about an item that is not there", tryNoItem},
		{"keychain: an item is made, read and removed", tryItem},
		{"touch id: probe", tryTouchID},
		{"touch id: a prompt is taken back", tryTakenBack},
		{"touch id: the prompt", tryPrompt},
	}
}

const (
	testService = "Yett self-test"
	testReason  = "finish the self-test of Yett, which gives access to nothing"
)

func tryNoItem(context.Context, *setting) (string, error) {
	k, err := system.OpenKeychain(system.CoreFoundation, system.Security)
	if err != nil {
		return "", err
	}
	_, err = k.Read(testService, rand.Text())
	if !errors.Is(err, macos.ErrNoItem) {
		return "", fmt.Errorf("the keychain says: %w", err)
	}
	return err.Error(), nil
}

func tryItem(_ context.Context, s *setting) (string, error) {
	if !s.interactive {
		return "", errInteractive // the keychain is outside of the directory, and may ask
	}
	k, err := system.OpenKeychain(system.CoreFoundation, system.Security)
	if err != nil {
		return "", err
	}
	account, value := rand.Text(), []byte(rand.Text())
	if err := k.Add(testService, account, testService, value); err != nil {
		return "", err
	}
	got, err := k.Read(testService, account)
	again := k.Add(testService, account, testService, value)
	removed := k.Delete(testService, account)
	_, after := k.Read(testService, account)
	switch {
	case err != nil || removed != nil:
		return "", errors.Join(err, removed)
	case !bytes.Equal(got, value):
		return "", errors.New("another value was read than was kept")
	case !errors.Is(again, macos.ErrItemThere):
		return "", fmt.Errorf("a second item of the name: %v", again)
	case !errors.Is(after, macos.ErrNoItem):
		return "", fmt.Errorf("after it was removed: %v", after)
	}
	return "kept, read, not replaced, removed", nil
}

func openTouchID() (*system.TouchID, error) {
	return system.OpenTouchID(system.LibSystem, system.CoreFoundation, system.LibObjC, system.LocalAuthentication)
}

// tryTouchID passes where the system answers at all: a Mac without a sensor is
// one too.
func tryTouchID(context.Context, *setting) (string, error) {
	t, err := openTouchID()
	if err != nil {
		return "", err
	}
	found := ""
	for _, p := range []struct {
		policy macos.Policy
		name   string
	}{{macos.Biometrics, "finger"}, {macos.DeviceOwner, "; finger, watch or password"}} {
		said := "can be asked for"
		err := t.Can(p.policy)
		var no *macos.NotAuthenticated
		if errors.As(err, &no) {
			said = no.Error()
		} else if err != nil {
			return "", err
		}
		found += p.name + ": " + said
	}
	return found, nil
}

// tryTakenBack shows a prompt that goes away by itself after two seconds.
func tryTakenBack(ctx context.Context, s *setting) (string, error) {
	t, err := promptable(s)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := t.Ask(ctx, macos.Biometrics, testReason+"; wait, and do not touch"); !errors.Is(err, context.DeadlineExceeded) {
		return "", fmt.Errorf("the prompt ended with: %v", err)
	}
	return "it went without an answer", nil
}

func tryPrompt(ctx context.Context, s *setting) (string, error) {
	t, err := promptable(s)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), personTime) // longer than a check has otherwise
	defer cancel()
	if err := t.Ask(ctx, macos.Biometrics, testReason); err != nil {
		return "", err
	}
	return "answered by a finger", nil
}

// promptable is the sensor, if a person may be asked and there is one.
func promptable(s *setting) (*system.TouchID, error) {
	if !s.interactive {
		return nil, errInteractive
	}
	t, err := openTouchID()
	if err != nil {
		return nil, err
	}
	if err := t.Can(macos.Biometrics); err != nil {
		return nil, skipped(err.Error())
	}
	return t, nil
}
