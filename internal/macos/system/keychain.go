package system

import (
	"fmt"

	"github.com/yett-broker/yett/internal/macos"
)

// Keychain keeps generic passwords in the login keychain of the account. An item
// is found by its service and account. What is read is copied for the caller to
// wipe; the framework's own copies are released and not wiped.
//
// A call may show the keychain's own prompt and then takes as long as the person
// does. It cannot be cancelled.
type Keychain struct {
	cf *foundation

	add    func(attributes ref, result *ref) int32
	find   func(query ref, result *ref) int32
	remove func(query ref) int32

	class, genericPassword, service, account, label, value, returnData, accessible, whenUnlockedHere uintptr // addresses of constants
	yes                                                                                              uintptr
}

func (k *Keychain) bindings() []binding {
	return []binding{
		{"SecItemAdd", &k.add},
		{"SecItemCopyMatching", &k.find},
		{"SecItemDelete", &k.remove},
		{"kSecClass", &k.class},
		{"kSecClassGenericPassword", &k.genericPassword},
		{"kSecAttrService", &k.service},
		{"kSecAttrAccount", &k.account},
		{"kSecAttrLabel", &k.label},
		{"kSecValueData", &k.value},
		{"kSecReturnData", &k.returnData},
		{"kSecAttrAccessible", &k.accessible},
		{"kSecAttrAccessibleWhenUnlockedThisDeviceOnly", &k.whenUnlockedHere},
	}
}

func (k *Keychain) truth() []binding { return []binding{{"kCFBooleanTrue", &k.yes}} }

// OpenKeychain opens both frameworks, or stand-ins for them.
func OpenKeychain(coreFoundation, security string) (*Keychain, error) {
	k := &Keychain{cf: &foundation{}}
	for _, l := range []struct {
		path string
		want []binding
	}{{coreFoundation, append(k.cf.bindings(), k.truth()...)}, {security, k.bindings()}} {
		opened, err := open(l.path)
		if err == nil {
			err = opened.bind(l.want)
		}
		if err != nil {
			return nil, err
		}
	}
	return k, nil
}

func keychainStatus(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &macos.KeychainError{Call: call, Code: code}
}

// item is the dictionary that names one item, with more entries; the caller
// releases it.
func (k *Keychain) item(service, account string, more ...entry) (ref, error) {
	if service == "" || account == "" { // an empty name would match every item
		return 0, fmt.Errorf("an item of the keychain without a name")
	}
	s, err := k.cf.newString(service)
	if err != nil {
		return 0, err
	}
	defer k.cf.release(s)
	a, err := k.cf.newString(account)
	if err != nil {
		return 0, err
	}
	defer k.cf.release(a)
	return k.cf.newDictionary(append([]entry{
		{constant(k.class), constant(k.genericPassword)},
		{constant(k.service), s},
		{constant(k.account), a},
	}, more...)...)
}

// Add makes an item. One that is there already is not replaced.
func (k *Keychain) Add(service, account, label string, value []byte) error {
	data, err := k.cf.newData(value)
	if err != nil {
		return err
	}
	defer k.cf.release(data)
	name, err := k.cf.newString(label)
	if err != nil {
		return err
	}
	defer k.cf.release(name)
	attributes, err := k.item(service, account, entry{constant(k.label), name}, entry{constant(k.value), data},
		entry{constant(k.accessible), constant(k.whenUnlockedHere)})
	if err != nil {
		return err
	}
	defer k.cf.release(attributes)
	return keychainStatus("SecItemAdd", k.add(attributes, nil))
}

// Read returns the value of an item, for the caller to wipe.
func (k *Keychain) Read(service, account string) ([]byte, error) {
	query, err := k.item(service, account, entry{constant(k.returnData), constant(k.yes)})
	if err != nil {
		return nil, err
	}
	defer k.cf.release(query)
	var found ref
	if err := keychainStatus("SecItemCopyMatching", k.find(query, &found)); err != nil {
		return nil, err
	}
	if found == 0 {
		return nil, errNoMemory
	}
	defer k.cf.release(found)
	return k.cf.bytes(found)
}

// Delete removes an item.
func (k *Keychain) Delete(service, account string) error {
	query, err := k.item(service, account)
	if err != nil {
		return err
	}
	defer k.cf.release(query)
	return keychainStatus("SecItemDelete", k.remove(query))
}
