// Builds the dashboard into built/, or another folder: one page, and what it refers to under names that change with what is in
// them. Needs protoc (Debian: protobuf-compiler) and `npm ci`. sheafd has the files of built/ in its binary.
//
//   node build.mjs [FOLDER]
import {execFileSync} from "node:child_process";
import {mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {basename, dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";

import {build} from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const folder = resolve(process.argv[2] ?? join(here, "built"));
const protos = join(here, "../proto");
const run = (program, args) => execFileSync(program, args, {cwd: here, stdio: ["ignore", "inherit", "inherit"]});

// Of the messages only the types of their JSON are used: nothing of protobuf is in the page.
rmSync(join(here, "gen"), {recursive: true, force: true});
mkdirSync(join(here, "gen"));
run("protoc", [
  `--proto_path=${protos}`, `--plugin=protoc-gen-es=${join(here, "node_modules/.bin/protoc-gen-es")}`, "--es_out=gen",
  "--es_opt=target=ts,import_extension=js,json_types=true",
  ...readdirSync(join(protos, "sheaf/v1")).filter((name) => name.endsWith(".proto")).map((name) => join(protos, "sheaf/v1", name)),
]);
run(process.execPath, [join(here, "node_modules/typescript/bin/tsc"), "-p", "."]);

rmSync(folder, {recursive: true, force: true});
mkdirSync(folder, {recursive: true});
const {metafile} = await build({
  absWorkingDir: here, entryPoints: {app: "src/main.tsx", style: "src/style.css", icon: "src/icon.svg"}, outdir: folder, bundle: true,
  format: "esm", platform: "browser", target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  jsx: "automatic", jsxImportSource: "preact", loader: {".svg": "copy"},
  entryNames: "[name]-[hash]", assetNames: "[name]-[hash]",
  minify: true, legalComments: "none", charset: "utf8", metafile: true, logLevel: "warning",
  // The names of what is built hash paths, too: they must not depend on where node_modules is a link to.
  preserveSymlinks: true,
});
const outputs = Object.entries(metafile.outputs);
const nameOf = (source) => basename(outputs.find(([, output]) => output.entryPoint === source || Object.keys(output.inputs)[0] === source)[0]);
const page = readFileSync(join(here, "src/index.html"), "utf8")
  .replace(/(?<==")(src\/[^"]+)(?=")/g, (_, source) => `ui/${nameOf(source)}`);
writeFileSync(join(folder, "index.html"), page);
