// Builds the package: messages of the protocol into gen/, checked types and dist/sheaf.js. Needs protoc (Debian:
// protobuf-compiler) and `npm ci`.
//
//   node build.mjs
import {execFileSync} from "node:child_process";
import {mkdirSync, readdirSync, rmSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";

import {build} from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const protos = join(here, "../../proto");
const run = (program, args) => execFileSync(program, args, {cwd: here, stdio: ["ignore", "inherit", "inherit"]});

rmSync(join(here, "gen"), {recursive: true, force: true});
mkdirSync(join(here, "gen"));
run("protoc", [
  `--proto_path=${protos}`, `--plugin=protoc-gen-es=${join(here, "node_modules/.bin/protoc-gen-es")}`, "--es_out=gen",
  "--es_opt=target=ts,import_extension=js",
  ...readdirSync(join(protos, "sheaf/v1")).filter((name) => name.endsWith(".proto")).map((name) => join(protos, "sheaf/v1", name)),
]);

rmSync(join(here, "dist"), {recursive: true, force: true});
run(process.execPath, [join(here, "node_modules/typescript/bin/tsc"), "-p", "."]);
const options = {
  absWorkingDir: here, outdir: "dist", bundle: true, format: "esm", platform: "neutral", mainFields: ["module", "main"],
  conditions: ["import", "browser"], target: "es2022", sourcemap: true, logLevel: "warning",
};
await build({...options, entryPoints: {sheaf: "src/index.ts"}});
// Its classes are those of sheaf.js, which it imports.
await build({
  ...options, entryPoints: {tfjs: "src/tfjs/index.ts"}, external: ["@tensorflow/tfjs"],
  plugins: [{
    name: "sheaf",
    setup: ({onResolve}) => onResolve({filter: /^\.\.\/index\.js$/}, () => ({path: "./sheaf.js", external: true})),
  }],
});
