// Reads an AsyncAPI document with the parser of those who wrote the specification: node asyncapi.mjs FILE
// Prints what is wrong, a line each, and ends with 1; what is only advice (another version, tags) is not wrong.
import { readFileSync } from "node:fs";
import { Parser } from "@asyncapi/parser";

const { document, diagnostics } = await new Parser().parse(readFileSync(process.argv[2], "utf8"));
const wrong = diagnostics.filter((one) => one.severity === 0);
for (const one of wrong) console.log(one.code, one.path.join("/"), one.message);
if (document) for (const channel of document.channels()) console.error(channel.id(), channel.address());
process.exit(wrong.length || !document ? 1 : 0);
