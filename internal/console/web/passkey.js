// Asking the browser for a passkey. What is asked comes from the console, which
// checks the answer: nothing is judged here. Bytes go out in base64, as they
// stand in every message to the console.

const patience = 120_000; // milliseconds

// usable says whether this page can ask for a passkey at all.
export const usable = () => window.isSecureContext && !!window.PublicKeyCredential;

// get asks for an answer to a challenge by one of the person's passkeys. Before a
// proof the console does not say which those are: the browser offers what it has.
export async function get(asked) {
  const { response, rawId } = await navigator.credentials.get({
    publicKey: {
      challenge: bytes(asked.challenge),
      rpId: asked.relying_party,
      allowCredentials: asked.credential_ids.map(known),
      userVerification: 'required',
      timeout: patience,
    },
  });
  return {
    credential_id: text(rawId),
    client_data_json: text(response.clientDataJSON),
    authenticator_data: text(response.authenticatorData),
    signature: text(response.signature),
  };
}

// create makes a new passkey. Each has a user of its own, so that it replaces
// none on the same device.
export async function create(asked, name) {
  const { response } = await navigator.credentials.create({
    publicKey: {
      challenge: bytes(asked.challenge),
      rp: { id: asked.relying_party, name: 'Yett' },
      user: { id: crypto.getRandomValues(new Uint8Array(32)), name: name, displayName: name },
      pubKeyCredParams: [-7, -8, -257].map((alg) => ({ type: 'public-key', alg })),
      excludeCredentials: asked.credential_ids.map(known),
      authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
      attestation: 'none',
      timeout: patience,
    },
  });
  return {
    name,
    client_data_json: text(response.clientDataJSON),
    attestation_object: text(response.attestationObject),
    transports: response.getTransports ? response.getTransports() : [],
  };
}

// words says in a sentence why a passkey gave no answer.
export function words(error) {
  switch (error.name) {
    case 'NotAllowedError':
      return 'The passkey was not used: it was cancelled, or nobody answered in time.';
    case 'InvalidStateError':
      return 'This device has a passkey of Yett already.';
    case 'SecurityError':
      return 'The browser asks for no passkey on this page; open the console by its own name.';
    case 'NotSupportedError':
      return 'This device has no passkey that verifies who is there.';
  }
  return 'The passkey could not be used.';
}

const known = (id) => ({ type: 'public-key', id: bytes(id) });

const bytes = (base64) => Uint8Array.from(atob(base64.replace(/-/g, '+').replace(/_/g, '/')), (c) => c.charCodeAt(0));

const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
