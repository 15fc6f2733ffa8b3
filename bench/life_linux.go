package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/yett-broker/yett/internal/endpoint"
	"github.com/yett-broker/yett/internal/wire"
)

// killAgents kills agents of both kinds in turn: one that has a session, whose
// end shows as the end of its channel, and one that is watched here by nothing
// but its pidfd.
func (b *bench) killAgents(n int) (ends, bare []time.Duration, err error) {
	for i := range n + 1 {
		e, err := b.killAgent(func(_, channel int) int { return channel })
		if err != nil {
			return nil, nil, err
		}
		p, err := b.killAgent(func(pidfd, _ int) int { return pidfd })
		if err != nil {
			return nil, nil, err
		}
		if i > 0 {
			ends, bare = append(ends, e), append(bare, p)
		}
	}
	return ends, bare, nil
}

// killAgent starts an agent, which hands over a copy of its channel, kills it,
// and times what happens first on the descriptor that it is watched by. The
// copy keeps the channel open: only the agent's death ends the session.
func (b *bench) killAgent(watched func(pidfd, channel int) int) (time.Duration, error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	mine, its := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "its")
	defer mine.Close()
	pidfd := -1
	c := exec.Command(filepath.Join(b.bin, "bench"), "-part", "agent", b.home)
	c.Stderr, c.ExtraFiles, c.SysProcAttr = os.Stderr, []*os.File{its}, &syscall.SysProcAttr{PidFD: &pidfd}
	err = c.Start()
	its.Close()
	if err != nil {
		return 0, err
	}
	defer unix.Close(pidfd)
	defer c.Wait()
	defer c.Process.Kill()
	channel, err := receive(int(mine.Fd()))
	if err != nil {
		return 0, err
	}
	defer unix.Close(channel)
	fds := []unix.PollFd{{Fd: int32(watched(pidfd, channel)), Events: unix.POLLIN}}
	begin := time.Now()
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil {
		return 0, err
	}
	for {
		switch _, err := unix.Poll(fds, 10_000); {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case fds[0].Revents == 0:
			return 0, errors.New("nothing happened in 10 s")
		}
		return time.Since(begin), nil
	}
}

func receive(socket int) (fd int, err error) {
	oob := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(socket, make([]byte, 1), oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return 0, err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(messages) != 1 {
		return 0, fmt.Errorf("the agent handed over nothing (%v)", err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return 0, fmt.Errorf("the agent handed over nothing (%v)", err)
	}
	return fds[0], nil
}

// playAgent opens a session, hands a copy of its channel over on descriptor 3,
// and waits to be killed.
func playAgent(home string) error {
	loc, err := endpoint.InHome(home)
	if err != nil {
		return err
	}
	conn, err := endpoint.Dial(context.Background(), loc)
	if err != nil {
		return err
	}
	frames := wire.NewFrameReader(conn)
	ask := func(id int64, method string, params, result any) error {
		frame, err := wire.EncodeRequest(id, method, params)
		if err == nil {
			_, err = conn.Write(frame)
		}
		if err == nil {
			frame, err = frames.Next()
		}
		if err != nil {
			return err
		}
		return decodeReply(frame, result)
	}
	var h wire.HelloResult
	if err := ask(1, wire.MethodHello, wire.Hello{ProtocolMin: 1, ProtocolMax: 1, Program: "bench", Role: wire.RoleNative}, &h); err != nil {
		return err
	}
	var s wire.SessionResult
	if err := ask(2, wire.MethodSessionOpen, wire.SessionOpen{Nonce: h.Nonce, Capabilities: []string{}}, &s); err != nil {
		return err
	}
	return handOver(conn.UnixConn)
}

func decodeReply(frame []byte, result any) error {
	_, got, fail, err := wire.DecodeReply(frame)
	if fail != nil {
		return fail
	}
	if err != nil {
		return err
	}
	return got.Decode(result)
}

func handOver(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = unix.Sendmsg(3, []byte{1}, unix.UnixRights(int(fd)), nil, 0) }); err != nil || failed != nil {
		return errors.Join(err, failed)
	}
	io.Copy(io.Discard, os.NewFile(3, "bench"))
	return nil
}
