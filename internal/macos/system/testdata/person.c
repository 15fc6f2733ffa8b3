/* The part of the stand-in that asks the person: the runtime of Objective-C as far
   as LAContext needs it, and the keychain. It ends the process where the system
   would. It is included by standin.c. */

#define BLOCK_FLAGS (1 << 28 | 1 << 30)

void *_NSConcreteGlobalBlock[32];

struct block {
	void *isa;
	int flags, reserved;
	void (*invoke)(struct block *, uintptr_t success, object *failure);
	struct { uintptr_t reserved, size; const char *signature; } *descriptor;
};

/* What the person does: the code of LAError, 0 for yes, and how it is told. */
enum { AT_ONCE, WHEN_TAKEN_BACK, TWICE, WITHOUT_ERROR, NEVER, YES_WHEN_TAKEN_BACK };
static int person_way, person_code;
void standin_person(int way, int code) { person_way = way; person_code = code; }

static char asked[512];
const char *standin_asked(void) { return asked; }

/* Classes and selectors. A selector is its interned name. */

enum { CLASS = 100, CONTEXT, ERROR };
static object class_context = {CLASS, 1, 1, .number = CONTEXT}, class_error = {CLASS, 1, 1, .number = ERROR};

object *objc_getClass(const char *name) {
#ifdef WITHOUT_CONTEXT
	if (!strcmp(name, "LAContext")) return 0;
#endif
	return strcmp(name, "NSError") ? &class_context : &class_error;
}

const char *sel_registerName(const char *name) {
	static char *known[32];
	int i = 0;
	for (; i < 31 && known[i]; i++) if (!strcmp(known[i], name)) return known[i];
	return known[i] = strdup(name);
}

void *class_getInstanceMethod(object *class, const char *selector) {
	static const char *context[] = {"init", "canEvaluatePolicy:error:", "evaluatePolicy:localizedReason:reply:",
#ifndef WITHOUT_INVALIDATE
		"invalidate",
#endif
		"setLocalizedFallbackTitle:", 0};
	static const char *error[] = {"code", 0};
	for (const char **m = class->number == CONTEXT ? context : error; *m; m++) if (!strcmp(*m, selector)) return m;
	return 0;
}

/* Pools: what is in one is released with it. */

static __thread object *pool[16];
static __thread int pooled, pools;
void *objc_autoreleasePoolPush(void) { pools++; return &pool[pooled]; }
void objc_autoreleasePoolPop(object **from) {
	if (!pools--) abort();
	while (&pool[pooled] != from) CFRelease(pool[--pooled]);
}
void objc_release(object *o) { CFRelease(o); }

static object *new_error(int code) {
	object *e = make(ERROR, 0, 0);
	e->number = code;
	return e;
}

/* The prompt: a thread of the system that replies once, but for a fault. */

static pthread_mutex_t prompt_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t prompt_change = PTHREAD_COND_INITIALIZER;
static int taken_back;
static pthread_t prompt_thread;
static int prompting;

static void reply(struct block *b, int code, int bare) {
	object *e = code && !bare ? new_error(code) : 0;
	b->invoke(b, code ? 0x700 : 0x701, e); /* of a BOOL only the lowest byte is set */
	if (e) CFRelease(e);
}

static void *prompt(void *of) {
	struct block *b = of;
	int code = person_code;
	if (person_way == WHEN_TAKEN_BACK || person_way == YES_WHEN_TAKEN_BACK || person_way == NEVER) {
		pthread_mutex_lock(&prompt_lock);
		while (!taken_back) pthread_cond_wait(&prompt_change, &prompt_lock);
		pthread_mutex_unlock(&prompt_lock);
		code = person_way == WHEN_TAKEN_BACK ? -9 : 0;
	}
	if (person_way != NEVER) reply(b, code, person_way == WITHOUT_ERROR);
	if (person_way == TWICE) reply(b, 0, 0);
	if (b->flags != BLOCK_FLAGS) abort(); /* it is looked at after the reply */
	return 0;
}

/* standin_prompted waits for the prompt's thread to end. */
int standin_prompted(void) {
	if (!prompting) return 0;
	prompting = 0;
	return pthread_join(prompt_thread, 0) ? -1 : 1;
}

static void evaluate(long policy, object *reason, struct block *b) {
	if ((policy != 1 && policy != 2) || !reason->size) abort();
	if (b->isa != _NSConcreteGlobalBlock || b->flags != BLOCK_FLAGS || b->descriptor->size != sizeof *b) abort();
	if (strncmp(b->descriptor->signature, "v20@?0", 6)) abort();
	size_t n = strlen(asked);
	asked[n++] = '0' + policy; asked[n++] = ' ';
	memcpy(asked + n, reason->bytes, reason->size);
	asked[n + reason->size] = 0;
	standin_prompted();
	taken_back = 0;
	prompting = !pthread_create(&prompt_thread, 0, prompt, b);
}

uintptr_t objc_msgSend(object *self, const char *selector, uintptr_t a, uintptr_t b, uintptr_t c) {
#define IS(name) (!strcmp(selector, name))
	if (self->type == CLASS && self->number == CONTEXT && IS("alloc")) return (uintptr_t)make(CONTEXT, 0, 0);
	if (self->type == ERROR && IS("code")) return self->number;
	if (self->type != CONTEXT) abort();
	if (IS("init")) {
		asked[0] = 0;
		if (person_code != 77) return (uintptr_t)self;
		CFRelease(self); /* init may give no object, and then lets go of this one */
		return 0;
	}
	if (IS("canEvaluatePolicy:error:")) {
		if (person_code) *(object **)b = pool[pooled++] = new_error(person_code);
		return !person_code;
	}
	if (IS("setLocalizedFallbackTitle:")) { strcpy(asked, ((object *)a)->size ? "title " : "no title "); return 0; }
	if (IS("evaluatePolicy:localizedReason:reply:")) { evaluate(a, (object *)b, (struct block *)c); return 0; }
	if (!IS("invalidate")) abort();
	pthread_mutex_lock(&prompt_lock);
	taken_back = 1;
	pthread_cond_signal(&prompt_change);
	pthread_mutex_unlock(&prompt_lock);
	return 0;
}

/* The keychain: a few items, and a status to refuse with. */

CONSTANT(kSecClass);
CONSTANT(kSecClassGenericPassword);
CONSTANT(kSecAttrService);
CONSTANT(kSecAttrAccount);
CONSTANT(kSecAttrLabel);
CONSTANT(kSecValueData);
CONSTANT(kSecReturnData);
CONSTANT(kSecAttrAccessible);
CONSTANT(kSecAttrAccessibleWhenUnlockedThisDeviceOnly);
static object true_object = {BOOLEAN, 1, 1, .number = 1};
object *kCFBooleanTrue = &true_object;

static struct item { char *service, *account, *label; size_t size; unsigned char *value; } items[8];
static int keychain_status;
void standin_keychain(int status) { keychain_status = status; }

static char *text_of(object *d, object *key) {
	object *o = CFDictionaryGetValue(d, key);
	if (!o || o->type != STRING || o->constant) return 0;
	char *t = calloc(1, o->size + 1);
	memcpy(t, o->bytes, o->size);
	return t;
}

/* found is the item that a dictionary names, an empty one if there is none, 0
   where the dictionary names no item. */
static struct item *found(object *d) {
	char *service = text_of(d, kSecAttrService), *account = text_of(d, kSecAttrAccount);
	struct item *i = 0;
	if (CFDictionaryGetValue(d, kSecClass) == kSecClassGenericPassword && service && account)
		for (i = items; i->service && (strcmp(i->service, service) || strcmp(i->account, account)); i++);
	free(service); free(account);
	return i;
}

int SecItemAdd(object *d, object **result) {
	struct item *i = found(d);
	object *value = CFDictionaryGetValue(d, kSecValueData);
	if (keychain_status) return keychain_status;
	if (!i || result || !value || value->type != DATA) return -50;
	if (CFDictionaryGetValue(d, kSecAttrAccessible) != kSecAttrAccessibleWhenUnlockedThisDeviceOnly) return -50;
	if (i->service) return -25299;
	*i = (struct item){text_of(d, kSecAttrService), text_of(d, kSecAttrAccount), text_of(d, kSecAttrLabel), value->size, malloc(value->size + 1)};
	memcpy(i->value, value->bytes, value->size);
	return 0;
}

int SecItemCopyMatching(object *d, object **result) {
	struct item *i = found(d);
	if (keychain_status == 1) { *result = 0; return 0; }              /* all is well, and no object */
	if (keychain_status == 2) { *result = make(STRING, "x", 1); return 0; } /* an object of another kind */
	if (keychain_status) return keychain_status;
	if (!i || CFDictionaryGetValue(d, kSecReturnData) != kCFBooleanTrue) return -50;
	if (!i->service) return -25300;
	*result = make(DATA, i->value, i->size);
	return 0;
}

int SecItemDelete(object *d) {
	struct item *i = found(d);
	if (keychain_status) return keychain_status;
	if (!i) return -50;
	if (!i->service) return -25300;
	for (; i->service; i++) i[0] = i[1];
	return 0;
}
