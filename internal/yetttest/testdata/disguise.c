// disguise FILE SOCKET [AUXV]: has the kernel name FILE as its program and
// passes on what comes between its standard input and output and SOCKET, which
// is a path to connect to or the number of a descriptor. The content of the
// file AUXV becomes its auxiliary vector. It needs no right: a child that
// shares its memory goes into a user namespace of its own, where it may say
// what the program of that memory is. It itself stays where it was. See
// prctl(2), PR_SET_MM_MAP.
#define _GNU_SOURCE
#include <err.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

// leave_file puts copies of the pages of this program's file in their place:
// the kernel names another file only for a memory that has nothing of the old.
static void leave_file(void) {
	static char maps[1 << 16], self[4096];
	if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
		err(1, "exe");
	int fd = open("/proc/self/maps", O_RDONLY);
	ssize_t size = 0, n;
	while ((n = read(fd, maps + size, sizeof maps - 1 - size)) > 0)
		size += n;
	close(fd);
	for (char *line = strtok(maps, "\n"); line; line = strtok(NULL, "\n")) {
		uintptr_t from, to;
		char mode[5];
		char *name = strchr(line, '/');
		if (!name || strcmp(name, self) || sscanf(line, "%lx-%lx %4s", &from, &to, mode) != 3)
			continue;
		int protection = (mode[0] == 'r') * PROT_READ | (mode[1] == 'w') * PROT_WRITE | (mode[2] == 'x') * PROT_EXEC;
		void *copy = mmap(NULL, to - from, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (copy == MAP_FAILED)
			err(1, "mmap");
		memcpy(copy, (void *)from, to - from);
		if (mprotect(copy, to - from, protection) || mremap(copy, to - from, to - from, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)from) == MAP_FAILED)
			err(1, "mremap");
	}
}

static struct prctl_mm_map map; // what the memory has, but for the program
static uint64_t auxv[128];

static void read_auxv(const char *path) {
	int fd = open(path, O_RDONLY);
	ssize_t size = fd < 0 ? -1 : read(fd, auxv, sizeof auxv);
	if (size <= 0)
		err(1, "%s", path);
	close(fd);
	map.auxv = (void *)auxv;
	map.auxv_size = size;
}

static void read_map(int exe) {
	static char text[4096];
	int fd = open("/proc/self/stat", O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof text - 1) <= 0)
		err(1, "stat");
	close(fd);
	uint64_t field[53] = {0};
	int i = 3;
	for (char *word = strtok(strrchr(text, ')') + 1, " "); word && i < 53; word = strtok(NULL, " "))
		field[i++] = strtoull(word, NULL, 10);
	map = (struct prctl_mm_map){.start_code = field[26], .end_code = field[27], .start_stack = field[28],
		.start_data = field[45], .end_data = field[46], .start_brk = field[47], .brk = (uintptr_t)sbrk(0),
		.arg_start = field[48], .arg_end = field[49], .env_start = field[50], .env_end = field[51], .exe_fd = exe};
}

static int child(void *unused) {
	_exit(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof map, 0) ? 1 : 0);
}

static void pass_on(int from, int to) {
	static char bytes[1 << 16];
	ssize_t n = read(from, bytes, sizeof bytes);
	if (n <= 0)
		exit(0);
	for (ssize_t done = 0, w; done < n; done += w)
		if ((w = write(to, bytes + done, n - done)) <= 0)
			exit(0);
}

static int reach(const char *where) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	if (where[0] != '/') {
		if (write(1, "ok \"up\"\n", 8) != 8) // as every program of a puppet says
			err(1, "stdout");
		return atoi(where);
	}
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (strlen(where) >= sizeof address.sun_path)
		errx(1, "%s is too long", where);
	strcpy(address.sun_path, where);
	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
		err(1, "%s", where);
	return fd;
}

int main(int argc, char **argv) {
	static char stack[1 << 16] __attribute__((aligned(16)));
	if (argc < 3)
		errx(2, "FILE SOCKET [AUXV]");
	int exe = open(argv[1], O_RDONLY | O_CLOEXEC);
	if (exe < 0)
		err(1, "%s", argv[1]);
	leave_file();
	read_map(exe);
	if (argc > 3)
		read_auxv(argv[3]);
	int status, pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_NEWUSER | SIGCHLD, NULL);
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		err(1, "clone");
	if (status)
		errx(1, "the kernel does not name another program");
	int broker = reach(argv[2]);
	for (struct pollfd on[] = {{.fd = 0, .events = POLLIN}, {.fd = broker, .events = POLLIN}}; poll(on, 2, -1) > 0;) {
		if (on[0].revents)
			pass_on(0, broker);
		if (on[1].revents)
			pass_on(broker, 1);
	}
	return 0;
}
