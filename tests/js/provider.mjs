/* An identity provider: oidc-provider, which is certified for OpenID Connect, with its own login form.

   node provider.mjs PORT CONFIG   CONFIG: JSON {client_id, client_secret, redirects, after, people: {login: {groups, …}}, ttl_s}
   POST /test/keys                 new signing keys, the old ones gone
   POST /test/forget               ends all sessions and what renews them
   POST /test/people               other claims from now on */

import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import Provider from "oidc-provider";

const port = Number(process.argv[2]);
const config = JSON.parse(readFileSync(process.argv[3], "utf8"));
const issuer = `http://127.0.0.1:${port}`;

function keys() {
  const { privateKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
  return { keys: [{ ...privateKey.export({ format: "jwk" }), kid: randomUUID(), use: "sig", alg: "RS256" }] };
}

/* What providers keep; it outlives a change of keys. */
const kept = new Map();
class Memory {
  constructor(kind) { this.kind = kind; }
  key(id) { return `${this.kind}:${id}`; }
  async upsert(id, payload) { kept.set(this.key(id), { ...payload }); }
  async find(id) { return kept.get(this.key(id)); }
  async findByUid(uid) { return [...kept.values()].find((one) => one.uid === uid); }
  async findByUserCode() {}
  async consume(id) { const found = kept.get(this.key(id)); if (found) found.consumed = Math.floor(Date.now() / 1000); }
  async destroy(id) { kept.delete(this.key(id)); }
  async revokeByGrantId(grantId) { for (const [id, one] of kept) if (one.grantId === grantId) kept.delete(id); }
}

function provider() {
  return new Provider(issuer, {
    adapter: Memory,
    jwks: keys(),
    cookies: { keys: ["for tests alone"] },
    clients: [{
      client_id: config.client_id,
      client_secret: config.client_secret,
      redirect_uris: config.redirects,
      post_logout_redirect_uris: config.after,
      grant_types: ["authorization_code", "refresh_token"],
      token_endpoint_auth_method: config.client_secret ? "client_secret_basic" : "none",
    }],
    claims: { openid: ["sub"], profile: ["name", "groups", "device"] },
    conformIdTokenClaims: config.claims_in_userinfo ?? false,
    pkce: { required: () => true },
    features: { revocation: { enabled: true }, rpInitiatedLogout: { enabled: true } },
    ttl: { AccessToken: 60, IdToken: config.ttl_s ?? 600, RefreshToken: 3600, Session: 3600, Grant: 3600, Interaction: 600 },
    findAccount: (_, id) => (id in config.people ? { accountId: id, claims: () => ({ sub: id, ...config.people[id] }) } : undefined),
  });
}

let serve = provider().callback();
createServer(async (request, response) => {
  if (!request.url.startsWith("/test/")) return serve(request, response);
  let body = "";
  for await (const piece of request) body += piece;
  if (request.url === "/test/keys") serve = provider().callback();
  if (request.url === "/test/forget") kept.clear();
  if (request.url === "/test/people") config.people = JSON.parse(body);
  response.writeHead(204).end();
}).listen(port, "127.0.0.1", () => console.log("ready"));
