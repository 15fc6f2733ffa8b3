/* A stand-in for libSystem, CoreFoundation, Security.framework, IOKit and
   CoreGraphics, for tests on other systems. It has the calls that internal/macos/system makes and a few
   processes, by pid:

     100  signed by a developer      101  signed ad hoc
     102  unsigned                   103  the framework names other code than the kernel
     104  an identifier that is a number
     105  does not satisfy any requirement
     106  no code-directory hash     107  the task of another process
     108  the framework has no requirement for it, and says that all is well
     109  a program of the system

   Objects are counted, so that a test sees what was not released. */

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct { uint32_t word[8]; } token;

static uint32_t peer = 100;
void standin_peer(uint32_t pid) { peer = pid; }

static token token_of(uint32_t pid) {
	token t = {{501, 501, 20, 501, 20, pid, 100001, 7}};
	return t;
}

int getsockopt(int fd, int level, int name, void *to, uint32_t *size) {
	if (level != 0 || name != 6 || *size != sizeof(token)) { errno = EINVAL; return -1; }
	if (fd < 0) { errno = EBADF; return -1; }
	token t = token_of(peer);
	memcpy(to, &t, sizeof t);
	if (fd == 1000) *size = 16;
	return 0;
}

int proc_pidpath_audittoken(token *t, void *to, uint32_t size) {
	static const char path[] = "/Applications/Agent.app/Contents/MacOS/agent";
	if (t->word[5] == 102) { errno = ESRCH; return 0; }
	if (size < sizeof path) { errno = ENOMEM; return 0; }
	memcpy(to, path, sizeof path - 1);
	return sizeof path - 1;
}

int proc_pidinfo(int pid, int flavor, uint64_t arg, void *to, int size) {
	if (flavor != 3 || size != 136) { errno = EINVAL; return 0; }
	if (pid == 102) { errno = ESRCH; return 0; }
	uint32_t info[34] = {0};
	info[3] = pid; info[4] = 50; info[5] = 501; info[6] = 20; info[7] = 501;
	memcpy(&info[16], "agent", 6);
	info[27] = ~0u;
	uint64_t start = 1790000000;
	memcpy(&info[30], &start, 8);
	memcpy(to, info, sizeof info);
	return pid == 107 ? 100 : sizeof info;
}

static int name(const char *text, unsigned char *to, size_t size) {
	uint32_t n = strlen(text) + 1 + 8;
	if (size < n) { errno = ERANGE; return -1; }
	memset(to, 0, 8);
	to[4] = n >> 24; to[5] = n >> 16; to[6] = n >> 8; to[7] = n;
	memcpy(to + 8, text, n - 8);
	return 0;
}

static uint32_t status(int pid) { return pid == 101 ? 0x20000003 : pid == 109 ? 0x24000001 : 0x20010001; }

int csops_audittoken(int pid, unsigned op, void *to, size_t size, token *t) {
	if ((int)t->word[5] != pid || t->word[7] != 7) { errno = ESRCH; return -1; }
	uint32_t flags = pid == 102 ? 0 : status(pid);
	switch (op) {
	case 0: memcpy(to, &flags, 4); return 0;
	case 5: memset(to, 0, size); ((char *)to)[0] = 1; ((char *)to)[19] = (char)pid; return 0;
	case 11: return name("com.example.agent", to, size);
	case 14: if (pid == 101 || pid == 109) { errno = ENOENT; return -1; } return name("ABCDE12345", to, size);
	}
	errno = EINVAL;
	return -1;
}

uint32_t mach_task_self_ = 42;
int task_name_for_pid(uint32_t self, int pid, uint32_t *to) {
	if (self != 42 || pid == 102) return 5;
	*to = 1000 + pid;
	return 0;
}
int task_info(uint32_t task, uint32_t flavor, void *to, uint32_t *count) {
	if (flavor != 15 || *count != 8) return 4;
	token t = token_of(task == 1107 ? 100 : task - 1000);
	memcpy(to, &t, sizeof t);
	return 0;
}
int mach_port_deallocate(uint32_t self, uint32_t port) { return 0; }

int launch_activate_socket(const char *socket, int **to, size_t *count) {
	if (strcmp(socket, "broker")) return ENOENT;
	*to = malloc(2 * sizeof(int));
	(*to)[0] = 3; (*to)[1] = 4;
	*count = 2;
	return 0;
}

/* CoreFoundation */

enum { DATA = 1, STRING, DICTIONARY, NUMBER, OTHER, BOOLEAN };
typedef struct object {
	int type, count, constant;
	size_t size;
	unsigned char *bytes;
	int64_t number;
	struct object *key[8], *value[8];
} object;

static int live;
int standin_live(void) { return live; }

static object *make(int type, const void *bytes, size_t size) {
	object *o = calloc(1, sizeof *o);
	o->type = type; o->count = 1; o->size = size;
	o->bytes = malloc(size + 1);
	if (size) memcpy(o->bytes, bytes, size);
	__atomic_add_fetch(&live, 1, __ATOMIC_SEQ_CST);
	return o;
}
void CFRelease(object *o) {
	if (o->constant || --o->count) return;
	for (int i = 0; i < 8 && o->key[i]; i++) { CFRelease(o->key[i]); CFRelease(o->value[i]); }
	free(o->bytes);
	free(o);
	__atomic_sub_fetch(&live, 1, __ATOMIC_SEQ_CST);
}
static object *keep(object *o) { o->count++; return o; }

object *CFDataCreate(void *a, const void *b, long n) { return make(DATA, b, n); }
long CFDataGetLength(object *o) { return o->size; }
void *CFDataGetBytePtr(object *o) { return o->bytes; }
object *CFStringCreateWithBytes(void *a, const void *b, long n, uint32_t encoding, uint8_t external) {
	return encoding == 0x08000100 ? make(STRING, b, n) : 0;
}
uint8_t CFStringGetCString(object *o, char *to, long size, uint32_t encoding) {
	if ((long)o->size + 1 > size || encoding != 0x08000100) return 0;
	memcpy(to, o->bytes, o->size);
	to[o->size] = 0;
	return 1;
}
long CFStringGetLength(object *o) { return o->size; }
static void put(object *d, object *key, object *value) {
	int i = 0;
	while (d->key[i]) i++;
	d->key[i] = keep(key); d->value[i] = value;
}
struct callbacks { int version; } kCFTypeDictionaryKeyCallBacks, kCFTypeDictionaryValueCallBacks;
object *CFDictionaryCreate(void *a, object **keys, object **values, long n, void *k, void *v) {
	if (n < 1 || n > 7 || k != &kCFTypeDictionaryKeyCallBacks || v != &kCFTypeDictionaryValueCallBacks) return 0;
	object *d = make(DICTIONARY, 0, 0);
	for (int i = 0; i < n; i++) put(d, keys[i], keep(values[i]));
	return d;
}
static int same(object *a, object *b) {
	return a == b || (a->bytes && b->bytes && a->type == b->type && a->size == b->size && !memcmp(a->bytes, b->bytes, a->size));
}
object *CFDictionaryGetValue(object *d, object *key) {
	for (int i = 0; i < 8 && d->key[i]; i++) if (same(d->key[i], key)) return d->value[i];
	return 0;
}
uint8_t CFNumberGetValue(object *o, long kind, int64_t *to) { *to = o->number; return kind == 4; }
unsigned long CFGetTypeID(object *o) { return o->type; }
unsigned long CFDataGetTypeID(void) { return DATA; }
unsigned long CFStringGetTypeID(void) { return STRING; }
unsigned long CFNumberGetTypeID(void) { return NUMBER; }

/* Security */

#define CONSTANT(name) static object name##_object = {STRING, 1, 1}; object *name = &name##_object
CONSTANT(kSecGuestAttributeAudit);
CONSTANT(kSecCodeInfoIdentifier);
CONSTANT(kSecCodeInfoTeamIdentifier);
CONSTANT(kSecCodeInfoUnique);
CONSTANT(kSecCodeInfoStatus);

int SecCodeCopyGuestWithAttributes(object *host, object *attributes, uint32_t flags, object **guest) {
	object *data = CFDictionaryGetValue(attributes, kSecGuestAttributeAudit);
	if (host || !data || data->type != DATA || data->size != sizeof(token)) return -67028;
	*guest = make(OTHER, 0, 0);
	(*guest)->number = ((token *)data->bytes)->word[5];
	return 0;
}

static char required[1024];
const char *standin_required(void) { return required; }

#ifndef WITHOUT_REQUIREMENT
int SecRequirementCreateWithString(object *text, uint32_t flags, object **requirement) {
	memcpy(required, text->bytes, text->size);
	required[text->size] = 0;
	if (strstr(required, "00006c\"")) { *requirement = 0; return 0; } /* 108 */
	*requirement = make(OTHER, 0, 0);
	return 0;
}
#endif

int SecCodeCheckValidity(object *code, uint32_t flags, object *requirement) {
	return code->number == 105 ? -67050 : 0;
}

int SecCodeCopySigningInformation(object *code, uint32_t flags, object **info) {
	if (flags != 10) return -67003;
	int pid = code->number;
	object *d = make(DICTIONARY, 0, 0), *n = make(NUMBER, 0, 0);
	n->number = status(pid);
	put(d, kSecCodeInfoStatus, n);
	object *id = make(pid == 104 ? NUMBER : STRING, "com.example.agent", 17);
	put(d, kSecCodeInfoIdentifier, id);
	if (pid != 101 && pid != 109) put(d, kSecCodeInfoTeamIdentifier, make(STRING, "ABCDE12345", 10));
	unsigned char hash[20] = {pid == 103 ? 2 : 1};
	hash[19] = pid;
	if (pid != 106) put(d, kSecCodeInfoUnique, make(DATA, hash, 20));
	*info = d;
	return 0;
}

/* Sleep (IOKit, and the queues of libSystem). standin_power calls back from a
   thread of its own, as a queue does, and waits for its end. */

#define POWER_ROOT 77
static void (*power_call)(void *, uint32_t, uint32_t, void *);
static int power_queues, power_ports, power_told;
static long power_allowed;

void *dispatch_queue_create(const char *label, void *attributes) {
	if (strcmp(label, "io.github.yett-broker.power") || attributes) return 0;
	power_queues++;
	return &power_queues;
}
void dispatch_release(void *queue) { power_queues--; }
uint32_t IORegisterForSystemPower(void *context, void **port, void *callback, uint32_t *notifier) {
	power_call = callback;
	power_ports++;
	*port = &power_ports;
	*notifier = 5;
	return POWER_ROOT;
}
void IONotificationPortSetDispatchQueue(void *port, void *queue) {
	power_told = port == &power_ports && queue == &power_queues;
}
int IODeregisterForSystemPower(uint32_t *notifier) { power_told = 0; return *notifier == 5 ? 0 : -1; }
void IONotificationPortDestroy(void *port) { power_ports--; }
int IOServiceClose(uint32_t root) { return root == POWER_ROOT ? 0 : -1; }
int IOAllowPowerChange(uint32_t root, long id) {
	if (root == POWER_ROOT) power_allowed = id;
	return 0;
}

long standin_allowed(void) { return power_allowed; }
int standin_open(void) { return power_queues + power_ports; }

struct word { uint32_t message; void *id; };
static void *tell(void *w) {
	power_call(0, 6, ((struct word *)w)->message, ((struct word *)w)->id);
	return 0;
}
int standin_power(uint32_t message, long id) {
	struct word w = {message, (void *)id};
	pthread_t t;
	if (!power_told || pthread_create(&t, 0, tell, &w)) return -1;
	return pthread_join(t, 0);
}

/* The login's screen (CoreGraphics): 0 open, 1 locked, 2 locked, said by a
   number, 3 said by a text, 4 no screen. */

static int screen;
void standin_screen(int state) { screen = state; }
unsigned long CFBooleanGetTypeID(void) { return BOOLEAN; }
uint8_t CFBooleanGetValue(object *o) { return o->number; }
object *CGSessionCopyCurrentDictionary(void) {
	if (screen == 4) return 0;
	object *d = make(DICTIONARY, 0, 0);
	if (screen) {
		object *key = make(STRING, "CGSSessionScreenIsLocked", 24);
		object *value = make(screen == 1 ? BOOLEAN : screen == 2 ? NUMBER : STRING, "yes", 3);
		value->number = 1;
		put(d, key, value);
		CFRelease(key);
	}
	return d;
}

#include "person.c"
