// An authorization server of oidc-provider that rotates refresh tokens and takes
// a second use of one for theft, and an API behind it that takes its access
// tokens. usage: node oidc.mjs
// It prints one line of JSON: where both are, and a refresh token of somebody who
// has signed in already.
import http from 'node:http';
import { Provider } from 'oidc-provider';

const secret = 'secret+of/a client';
const listening = (server) => new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(`http://127.0.0.1:${server.address().port}`)));

const front = http.createServer((req, res) => handle(req, res));
let handle;
const issuer = await listening(front);
const provider = new Provider(issuer, {
  clients: [
    { client_id: 'mail', client_secret: secret, grant_types: ['authorization_code', 'refresh_token'], redirect_uris: ['https://mail.example/cb'] },
    { client_id: 'crm', client_secret: secret, grant_types: ['client_credentials'], redirect_uris: [], response_types: [], token_endpoint_auth_method: 'client_secret_post' },
  ],
  features: { clientCredentials: { enabled: true }, devInteractions: { enabled: false } },
  rotateRefreshToken: true,
  ttl: { AccessToken: 3600, ClientCredentials: 3600, RefreshToken: 3600, Grant: 3600 },
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  scopes: ['openid', 'offline_access', 'read'],
});
provider.on('server_error', (_, err) => console.error(err));
handle = provider.callback();

const client = await provider.Client.find('mail');
const grant = new provider.Grant({ accountId: 'ada', clientId: 'mail' });
grant.addOIDCScope('openid offline_access read');
const refresh = new provider.RefreshToken({ accountId: 'ada', client, grantId: await grant.save(), scope: 'openid offline_access read', gty: 'authorization_code', rotations: 0 });

const api = http.createServer(async (req, res) => {
  const token = (req.headers.authorization ?? '').replace(/^Bearer /, '');
  const known = await provider.AccessToken.find(token) ?? await provider.ClientCredentials.find(token);
  res.statusCode = known ? 200 : 401;
  res.end(known ? `${known.clientId} may ${known.scope ?? 'nothing in particular'}` : 'who are you?');
});
console.log(JSON.stringify({ token_endpoint: `${issuer}/token`, api: await listening(api), refresh_token: await refresh.save(), client_secret: secret }));
process.stdin.resume().on('end', () => process.exit());
