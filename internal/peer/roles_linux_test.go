package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The tests look at real processes: this binary, started again in a role.
const roleVariable = "YETT_PEER_ROLE"

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	play, ok := roles[role]
	if !ok {
		fatal(fmt.Errorf("no role %q", role))
	}
	if err := play(os.Args[1:]); err != nil {
		fatal(err)
	}
	os.Exit(0)
}

func fatal(err error) {
	fmt.Println("error:", err)
	os.Exit(3)
}

var roles map[string]func(args []string) error

func init() { // the roles start each other
	roles = map[string]func(args []string) error{
		"idle":      playIdle,
		"client":    playClient,
		"writer":    playWriter,
		"late":      playLate,
		"taker":     playTaker,
		"opener":    playOpener,
		"memory":    playMemory,
		"host":      playHost,
		"leave":     playLeave,
		"sibling":   playSibling,
		"subreaper": playSubreaper,
		"recycle":   playRecycle,
		"stdio":     playStdio,
		"shim":      playShim,
		"judge":     playJudge,
		"family":    playFamily,
		"chain":     playChain,
		"fuse":      playFuse,
		"turn":      playTurn,
		"outsider":  playOutsider,
		"disguised": playDisguised,
	}
}

// playIdle lives until its standard input ends.
func playIdle([]string) error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// again prepares this program for another role, with our stdio.
func again(role string, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		fatal(err)
	}
	cmd := exec.Command(strings.TrimSuffix(self, " (deleted)"), args...)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stdin, cmd.Stdout = os.Stdin, os.Stdout
	return cmd
}

// playClient connects to args[0], first hiding itself if args[1] says so, and
// obeys the lines of its standard input, answering "ok" to each.
func playClient(args []string) error {
	if len(args) > 1 && args[1] == "hidden" {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
			return err
		}
	}
	c, err := net.Dial("unix", args[0])
	if err != nil {
		return err
	}
	conn := c.(*net.UnixConn)
	fmt.Println("ok")
	for {
		line, err := lineOfStdin()
		if err != nil {
			return nil
		}
		if err := obey(conn, strings.Fields(line)); err != nil {
			return err
		}
		fmt.Println("ok")
	}
}

// lineOfStdin takes no byte more than the line, since children share stdin.
func lineOfStdin() (string, error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := os.Stdin.Read(b); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
}

func obey(conn *net.UnixConn, words []string) error {
	socket, err := conn.File() // a duplicate for children
	if err != nil {
		return err
	}
	defer socket.Close()
	switch words[0] {
	case "write":
		_, err := conn.Write([]byte(words[1]))
		return err
	case "hide":
		return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	case "become": // another user
		uid, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		return syscall.Setuid(uid)
	case "child": // a child writes on the inherited descriptor
		cmd := again("writer", words[1])
		cmd.ExtraFiles = []*os.File{socket}
		return cmd.Run()
	case "leave": // a child stays behind with the descriptor
		cmd := again("late", words[1])
		cmd.ExtraFiles = []*os.File{socket}
		if err := cmd.Start(); err != nil {
			return err
		}
		os.Exit(0)
	case "exec": // another program, which keeps the descriptor
		if _, err := unix.FcntlInt(socket.Fd(), unix.F_SETFD, 0); err != nil {
			return err
		}
		unix.CloseOnExec(1) // its end tells the test that the exec is done
		return become("idle", words[1], words[1:])
	case "pass": // to the taker who listens at words[1]
		to, err := net.Dial("unix", words[1])
		if err != nil {
			return err
		}
		defer to.Close()
		_, _, err = to.(*net.UnixConn).WriteMsgUnix([]byte{0}, unix.UnixRights(int(socket.Fd())), nil)
		return err
	case "rights": // send a descriptor to the broker itself
		null, err := os.Open(os.DevNull)
		if err != nil {
			return err
		}
		defer null.Close()
		_, _, err = conn.WriteMsgUnix([]byte(words[1]), unix.UnixRights(int(null.Fd())), nil)
		return err
	case "close":
		return conn.Close()
	}
	return fmt.Errorf("unknown order %q", words)
}

// playWriter writes on descriptor 3.
func playWriter(args []string) error {
	_, err := os.NewFile(3, "inherited").Write([]byte(args[0]))
	return err
}

// playLate writes on descriptor 3 when it is told to.
func playLate(args []string) error {
	if _, err := lineOfStdin(); err != nil {
		return err
	}
	if err := playWriter(args); err != nil {
		return err
	}
	fmt.Println("ok")
	return playIdle(nil)
}

// playTaker listens at args[0], takes one descriptor and writes args[1] on it.
func playTaker(args []string) error {
	l, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	fmt.Println("ok")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	oob := make([]byte, 64)
	_, n, _, _, err := c.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		return err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	if _, err := unix.Write(fds[0], []byte(args[1])); err != nil {
		return err
	}
	fmt.Println("ok")
	return playIdle(nil)
}

// playOpener opens somebody's pipe through /proc and writes into it.
func playOpener(args []string) error {
	f, err := os.OpenFile(args[0], os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(args[1]))
	return err
}

// playMemory becomes a client that runs from a memfd.
func playMemory(args []string) error {
	fd, err := unix.MemfdCreate("client", 0)
	if err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if _, err := unix.Write(fd, self); err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	// A writable descriptor would keep the image from running.
	ro, err := unix.Open(path, unix.O_RDONLY, 0)
	if err != nil {
		return err
	}
	unix.Close(fd)
	return become("client", fmt.Sprintf("/proc/self/fd/%d", ro), append([]string{"client"}, args...))
}

// become execs program in another role.
func become(role, program string, argv []string) error {
	if err := os.Setenv(roleVariable, role); err != nil {
		return err
	}
	return syscall.Exec(program, argv, os.Environ())
}

// playHost starts args as a role and waits for it.
func playHost(args []string) error { return again(args[0], args[1:]...).Run() }

// playLeave starts args as a role and dies first.
func playLeave(args []string) error { return again(args[0], args[1:]...).Start() }

// playSibling starts args as a role, as a child of its own parent, and stays
// until that has ended.
func playSibling(args []string) error {
	parent, err := Parent()
	if err != nil {
		return err
	}
	cmd := again(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_PARENT}
	if err := cmd.Start(); err != nil {
		return err
	}
	<-parent.Done()
	return nil
}

// playSubreaper adopts what args leave behind.
func playSubreaper(args []string) error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	if err := again(args[0], args[1:]...).Run(); err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(-1, &status, 0, nil); err != nil && err != unix.EINTR {
			return nil // no children are left
		}
	}
}

// playShim says what Parent gives it, and when that process has died.
func playShim([]string) error {
	p, err := Parent()
	if err != nil {
		fmt.Println("refused", errors.Is(err, ErrNoAttribution), err)
		return nil
	}
	fmt.Println("parent", p.PID())
	<-p.Done()
	fmt.Println("died")
	return nil
}

// playStdio guards its standard input and says what it reads. args[0] is the
// parent that it believes in.
func playStdio(args []string) error {
	parent, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	s, err := GuardStdin(os.Stdin, os.Stdout, parent)
	if err != nil {
		return err
	}
	fmt.Println("guarded", s.Kind, s.Guarded)
	for {
		line, attributed, err := s.ReadLine(1 << 20)
		var sender *SenderError
		switch {
		case errors.As(err, &sender):
			fmt.Println("sender", sender.Want, sender.Got)
		case errors.Is(err, ErrIntruded):
			<-s.Intruded()
			fmt.Println("intruded")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		default:
			fmt.Printf("line %q %v\n", line, attributed)
			continue
		}
		return nil
	}
}
