// Serves a folder and the package, and passes calls on to a server, so that all come from one origin:
//   node serve.js FOLDER http://127.0.0.1:7480 [PORT]
// Any web server can do this. It is for trying things out on one machine: it has no TLS, and takes no care of strangers.
import {createReadStream, existsSync, statSync} from "node:fs";
import {createServer, request} from "node:http";
import {basename, dirname, extname, join} from "node:path";
import {fileURLToPath} from "node:url";

const [folder, server, port = "0"] = process.argv.slice(2);
const dist = join(dirname(fileURLToPath(import.meta.url)), "../../dist");
const TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"};

const site = createServer((incoming, answer) => {
  if (incoming.url.startsWith("/sheaf.v1.")) return passOn(incoming, answer);
  // Files of these two folders, and of no others.
  const name = basename(new URL(incoming.url, "http://localhost").pathname) || "index.html";
  const file = [join(folder, name), join(dist, name)].find((path) => existsSync(path) && statSync(path).isFile());
  const type = TYPES[extname(name)];
  if (file === undefined || type === undefined) return void answer.writeHead(404).end();
  answer.writeHead(200, {"content-type": type});
  createReadStream(file).pipe(answer);
});

function passOn(incoming, answer) {
  const call = request(new URL(incoming.url, server), {method: incoming.method, headers: incoming.headers}, (from) => {
    answer.writeHead(from.statusCode, from.headers);
    from.pipe(answer);
  });
  call.on("error", () => answer.destroy());
  // A tab that is closed waits no more.
  answer.on("close", () => call.destroy());
  incoming.pipe(call);
}

site.listen(Number(port), "127.0.0.1", () => console.log(`http://127.0.0.1:${site.address().port}`));
