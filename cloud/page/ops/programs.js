/* The same events as a program reads them: lines that run as they are, decided without the document. */

const text = (said) => JSON.stringify(said); /* a text of JSON is one of Python and JavaScript, too */

/** `server` and `path`: of the events; `name`: stream or query; `where`, `select`; `back`: from where, `-5m`. */
export function pythonOf({ server, name, where = "", select = "", back }) {
  const wanted = [`streams=(${text(name)},)`, where && `where=${text(where)}`, select && `select=${text(select)}`].filter(Boolean).join(", ");
  return `import asyncio
from edgewake.edge.client import Follower, Subscription

async def follow():
    wanted = Subscription(${wanted})
    async for event in Follower([${text(server)}], wanted, start=${text(back)}).events():
        print(event.text)

asyncio.run(follow())`;
}

/** In a page, or in Node with `EventSource` from the package `eventsource`. */
export function javascriptOf({ server, path, where = "", select = "", back }) {
  const asked = new URLSearchParams({ from: back, ...(where && { where }), ...(select && { select }) });
  return `const source = new EventSource(${text(`${server}${path}?${asked}`)});
source.onmessage = ({ data }) => console.log(data);`;
}

/** Both, as ways to get the same elsewhere. */
export function programsOf({ events_path: path, events_urls: urls }, more) {
  const server = urls[0] ? urls[0].slice(0, -path.length) : "http://ACCESS-SERVER";
  const asked = { server, path, ...more };
  return [["in Python", pythonOf(asked)], ["in JavaScript", javascriptOf(asked)]];
}
