// A proxy that compresses as Express servers do: node compressing.mjs TARGET [heedless]. Prints its port.
// `heedless` takes the word no-transform away, which tells it to leave an answer alone.
import http from "node:http";
import compression from "compression";

const target = new URL(process.argv[2]);
const compress = compression({ filter: () => true, threshold: 0 });
http
  .createServer((request, answer) => {
    compress(request, answer, () => {
      const asked = { host: target.hostname, port: target.port, path: request.url, method: request.method, headers: request.headers };
      const passed = http.request(asked, (found) => {
        if (process.argv[3] === "heedless") delete found.headers["cache-control"];
        answer.writeHead(found.statusCode, found.headers);
        found.pipe(answer);
      });
      passed.on("error", () => answer.destroy());
      answer.on("close", () => passed.destroy());
      request.pipe(passed);
    });
  })
  .listen(0, "127.0.0.1", function () {
    console.log(this.address().port);
  });
