// Follows an event stream with a client that others wrote: node follow.mjs eventsource|undici|parser URL LAST
// Prints the data of every reading, a line each, and ends with the one whose `n` is LAST or more. Reconnects are the client's own, but for
// eventsource-parser, which has none: there they are what its users write, with the last id and the server's retry.
const [kind, url, last] = process.argv.slice(2);

function show(data) {
  console.log(data);
  if (JSON.parse(data).n >= Number(last)) process.exit(0);
}

async function follow() {
  const { createParser } = await import("eventsource-parser");
  let lastEventId = "";
  let retryMs = 1000;
  for (;;) {
    try {
      const parser = createParser({
        onEvent({ id, event, data }) {
          lastEventId = id ?? lastEventId;
          if (!event || event === "message") show(data);
        },
        onRetry(ms) {
          retryMs = ms;
        },
      });
      const response = await fetch(url, { headers: lastEventId ? { "Last-Event-ID": lastEventId } : {} });
      const decoder = new TextDecoder();
      for await (const piece of response.body) parser.feed(decoder.decode(piece, { stream: true }));
    } catch {
      // the connection is lost: the next one goes on
    }
    await new Promise((resolve) => setTimeout(resolve, retryMs));
  }
}

if (kind === "parser") {
  await follow();
} else {
  const { EventSource } = await import(kind);
  setInterval(() => {}, 1000); // undici's wait for the next attempt does not keep a process alive; a real program has other things to do
  const source = new EventSource(url);
  source.onmessage = (event) => show(event.data);
  source.onerror = () => {
    if (source.readyState === 2) {
      console.error("closed for good");
      process.exit(1);
    }
  };
}
