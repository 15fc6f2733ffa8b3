// Checks receipts of yett receipt with nothing of Yett: by the verifier of
// @simplewebauthn/server, and by what docs/receipts.md says of digests.
// usage: node receipt.mjs PUBLIC-KEY-SHA256 RECEIPT…
// For each it prints a line: ok, or why not.
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { verifyAuthenticationResponse } from '@simplewebauthn/server';

const sha256 = (...parts) => parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();

async function check(receipt, person) {
  const publicKey = Buffer.from(receipt.public_key, 'base64url');
  if (sha256(publicKey).toString('hex') !== person) throw new Error('it is not the passkey of that person');

  const digest = sha256('yett-card-v1\n', receipt.card).toString('hex');
  if (digest !== receipt.card_digest || !receipt.digests.includes(digest)) throw new Error('it is about another card');

  const one = receipt.digests.length === 1;
  const message = [
    one ? 'yett-decision-v1' : `yett-decisions-v1\n${receipt.digests.length}`,
    ...receipt.digests, receipt.choice, receipt.until ?? '-', receipt.nonce,
  ].join('\n');

  const { credential_id: id, client_data_json: clientDataJSON, authenticator_data: authenticatorData, signature } = receipt.assertion;
  const { verified, authenticationInfo } = await verifyAuthenticationResponse({
    response: { id, rawId: id, type: 'public-key', clientExtensionResults: {}, response: { clientDataJSON, authenticatorData, signature } },
    expectedChallenge: sha256(message).toString('base64url'),
    expectedOrigin: receipt.origin,
    expectedRPID: 'localhost',
    requireUserVerification: true,
    credential: { id, publicKey, counter: 0 },
  });
  if (!verified || !authenticationInfo.userVerified) throw new Error('the signature does not hold');
}

const [person, ...files] = process.argv.slice(2);
for (const file of files) {
  const said = await check(JSON.parse(readFileSync(file, 'utf8')), person).then(() => 'ok', (error) => error.message);
  console.log(said.replaceAll('\n', ' '));
}
