package system

import (
	"errors"
	"sync"

	"github.com/ebitengine/purego"
)

// IOKit is the path of the framework that tells of sleep.
const IOKit = "/System/Library/Frameworks/IOKit.framework/IOKit"

// Messages about power (IOKit/IOMessage.h).
const (
	messageCanSleep  = 0xe0000270 // the machine would like to sleep, since nobody uses it
	messageWillSleep = 0xe0000280
	messageHasWoken  = 0xe0000300
)

// Power hears of sleep. Its calls back come on a serial queue of the system
// (dispatch_queue_create(3)): no thread has to wait in a run loop.
type Power struct {
	register    func(context uintptr, port *uintptr, callback uintptr, notifier *uint32) uint32
	deregister  func(notifier *uint32) int32
	allow       func(root uint32, id uintptr) int32
	closeRoot   func(root uint32) int32
	setQueue    func(port, queue uintptr)
	destroyPort func(port uintptr)

	queueCreate  func(label *byte, attributes uintptr) uintptr
	queueRelease func(queue uintptr)

	mu       sync.Mutex
	root     uint32 // 0 while nothing is heard
	port     uintptr
	notifier uint32
	queue    uintptr
	hear     func(sleeping bool, allow func())
}

func (p *Power) bindings() []binding {
	return []binding{
		{"IORegisterForSystemPower", &p.register},
		{"IODeregisterForSystemPower", &p.deregister},
		{"IOAllowPowerChange", &p.allow},
		{"IOServiceClose", &p.closeRoot},
		{"IONotificationPortSetDispatchQueue", &p.setQueue},
		{"IONotificationPortDestroy", &p.destroyPort},
	}
}

func (p *Power) queueBindings() []binding {
	return []binding{
		{"dispatch_queue_create", &p.queueCreate},
		{"dispatch_release", &p.queueRelease},
	}
}

// OpenPower opens IOKit and libSystem, or stand-ins for them.
func OpenPower(ioKit, libSystem string) (*Power, error) {
	p := &Power{}
	l, err := open(ioKit)
	if err == nil {
		err = l.bind(p.bindings())
	}
	if err != nil {
		return nil, err
	}
	if l, err = open(libSystem); err == nil {
		err = l.bind(p.queueBindings())
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// powerQueue names the queue for whoever looks at the process.
var powerQueue = []byte("io.github.yett-broker.power\x00")

// Hear calls hear before each sleep of the machine, which waits for allow (30
// seconds at most), and after each waking. The machine is never kept from
// sleeping. After stop no call begins; one that had begun may still end. Hear is
// called once, since the system's way back into Go is never given free.
func (p *Power) Hear(hear func(sleeping bool, allow func())) (stop func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hear != nil {
		return nil, errors.New("sleep is heard already")
	}
	p.hear = hear
	callback := purego.NewCallback(func(_ uintptr, _, message uint32, id uintptr) { p.told(message, id) })
	if p.queue = p.queueCreate(&powerQueue[0], 0); p.queue == 0 {
		return nil, errors.New("dispatch_queue_create: no queue")
	}
	if p.root = p.register(0, &p.port, callback, &p.notifier); p.root == 0 {
		p.queueRelease(p.queue)
		return nil, errors.New("IORegisterForSystemPower: no port")
	}
	p.setQueue(p.port, p.queue) // from here on it is told
	return p.stop, nil
}

// told is called by the system, on its queue. It does not hold the lock while
// it hands on, so that allow may be called at once.
func (p *Power) told(message uint32, id uintptr) {
	allow := sync.OnceFunc(func() { p.answer(id) })
	switch message {
	case messageCanSleep:
		allow()
	case messageWillSleep:
		p.handOn(true, allow)
	case messageHasWoken:
		p.handOn(false, func() {})
	}
}

func (p *Power) handOn(sleeping bool, allow func()) {
	p.mu.Lock()
	live := p.root != 0
	p.mu.Unlock()
	if !live {
		allow()
		return
	}
	p.hear(sleeping, allow)
}

// answer lets the machine sleep. After stop nobody waits for it.
func (p *Power) answer(id uintptr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.root != 0 {
		p.allow(p.root, id)
	}
}

func (p *Power) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.root == 0 {
		return
	}
	p.deregister(&p.notifier)
	p.destroyPort(p.port)
	p.closeRoot(p.root)
	p.queueRelease(p.queue)
	p.root = 0
}
