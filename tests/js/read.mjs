// Reads an event stream with eventsource-parser, as a Node program would: node read.mjs URL COUNT [LAST_EVENT_ID]
// Prints one JSON line per event: {"id":…,"event":…,"data":…}.
import { createParser } from "eventsource-parser";

const [url, count, lastEventId] = process.argv.slice(2);
let left = Number(count);
const parser = createParser({
  onEvent({ id, event, data }) {
    if (left <= 0) return;
    console.log(JSON.stringify({ id, event, data }));
    if (--left === 0) process.exit(0);
  },
});
const headers = lastEventId ? { "Last-Event-ID": lastEventId } : {};
const response = await fetch(url, { headers });
const decoder = new TextDecoder();
for await (const piece of response.body) parser.feed(decoder.decode(piece, { stream: true }));
