"""Attacks on a client by whoever wants to be taken for the broker. The listener
is this program, so where a broker may be one the installed yett is Python."""

import os
import shutil
import socket
import sys
import tempfile
import threading
import unittest

import yett_client

PYTHON = os.path.realpath(sys.executable)


class Checks(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.home)
        self.run_dir = os.path.join(self.home, "run")
        os.mkdir(self.run_dir, 0o700)
        self.path = os.path.join(self.run_dir, "broker.sock")

    def listen(self):
        listener = socket.socket(socket.AF_UNIX)
        self.addCleanup(listener.close)
        listener.bind(self.path)
        os.chmod(self.path, 0o600)
        listener.listen()
        return listener

    def refused(self, why, yett=PYTHON):
        with self.assertRaisesRegex(yett_client.Unavailable, why):
            yett_client.dial(self.home, yett)

    def test_good(self):
        listener = self.listen()
        channel = yett_client.dial(self.home, PYTHON)
        self.addCleanup(channel.close)
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        peer.sendall(b"a\nb\n")
        self.assertEqual([channel.line(), channel.line()], [b"a", b"b"])

    def test_no_broker(self):
        self.refused("No such file")

    def test_nobody_listens(self):
        self.listen().close()
        self.refused("nobody listens")

    def test_loose_directory(self):
        self.listen()
        os.chmod(self.run_dir, 0o755)
        self.refused("not this account's alone")

    def test_loose_socket(self):
        self.listen()
        os.chmod(self.path, 0o666)
        self.refused("no socket of this account's alone")

    def test_no_socket(self):
        with open(self.path, "w"):
            os.chmod(self.path, 0o600)
        self.refused("no socket of this account's alone")

    def test_linked_directory(self):
        self.listen()
        os.rename(self.run_dir, self.run_dir + "2")
        os.symlink("run2", self.run_dir)
        self.refused("Not a directory|symbolic")

    def test_linked_socket(self):
        self.listen()
        os.rename(self.path, self.path + "2")
        os.symlink("broker.sock2", self.path)
        self.refused("no socket of this account's alone")

    def test_another_program_listens(self):
        listener = self.listen()
        self.refused("not the installed yett", "/bin/true")
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        self.assertEqual(peer.recv(100), b"", "something was sent to an impostor")

    def test_listener_is_gone(self):
        """The number of a process that has ended proves nothing."""
        ready, done = os.pipe()
        keep = socket.socket(socket.AF_UNIX)  # the queue outlives who called listen
        self.addCleanup(keep.close)
        keep.bind(self.path)
        os.chmod(self.path, 0o600)
        child = os.fork()
        if child == 0:
            keep.listen()
            os.write(done, b"x")
            os._exit(0)
        os.read(ready, 1)
        os.waitpid(child, 0)
        self.refused("has ended|no handle")

    def test_another_process_writes(self):
        listener = self.listen()
        channel = yett_client.dial(self.home, PYTHON)
        self.addCleanup(channel.close)
        peer, _ = listener.accept()
        self.addCleanup(peer.close)
        peer.sendall(b"half of ")
        child = os.fork()
        if child == 0:
            peer.sendall(b"a line\n")
            os._exit(0)
        os.waitpid(child, 0)
        with self.assertRaisesRegex(yett_client.Closed, "not from the broker"):
            channel.line()

    def test_endless_message(self):
        listener = self.listen()
        channel = yett_client.dial(self.home, PYTHON)
        self.addCleanup(channel.close)
        peer, _ = listener.accept()

        def write():
            try:
                while True:
                    peer.sendall(b"x" * 65536)
            except OSError:
                pass  # the client has hung up

        writer = threading.Thread(target=write)
        writer.start()
        with self.assertRaisesRegex(yett_client.Closed, "too long"):
            channel.line()
        channel.close()
        writer.join()
        peer.close()

    def test_environment_chooses_nothing(self):
        def contract():
            try:
                return yett_client.contract()
            except yett_client.Unavailable as e:  # an account that nobody entered
                return str(e)

        before = contract()
        for name in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR", "YETT_HOME"):
            os.environ[name] = self.home
        self.assertEqual(contract(), before)


if __name__ == "__main__":
    unittest.main()
