// Verifies calls with npm's standardwebhooks. A line each: secret, id, timestamp, then signatures and body in base64; says good or refused.
import { createInterface } from "node:readline";
import { Webhook } from "../../js/node_modules/standardwebhooks/dist/index.js";

for await (const line of createInterface({ input: process.stdin })) {
  const [secret, id, at, signatures, body] = line.split(" ");
  const text = (base64) => Buffer.from(base64, "base64").toString("utf8");
  try {
    new Webhook(secret).verify(text(body), {
      "webhook-id": id,
      "webhook-timestamp": at,
      "webhook-signature": text(signatures),
    });
    console.log("good");
  } catch (error) {
    console.log(`refused ${error.constructor.name}: ${error.message}`);
  }
}
