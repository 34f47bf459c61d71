// Builds the page /join into built/, or another folder. Needs what sdk/js/build.mjs needs, and that it has run: the page has the
// package in it. sheafd has the files of built/ in its binary.
//
//   node build.mjs [FOLDER]
import {execFileSync} from "node:child_process";
import {mkdirSync, readFileSync, rmSync, writeFileSync} from "node:fs";
import {createRequire} from "node:module";
import {basename, dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const sdk = join(here, "../../sdk/js");
const {build} = createRequire(join(sdk, "package.json"))("esbuild");
const folder = resolve(process.argv[2] ?? join(here, "built"));

execFileSync(process.execPath, [join(sdk, "node_modules/typescript/bin/tsc"), "-p", here], {stdio: ["ignore", "inherit", "inherit"]});
rmSync(folder, {recursive: true, force: true});
mkdirSync(folder, {recursive: true});
const {metafile} = await build({
  absWorkingDir: here, entryPoints: {join: "page.ts", "join-worker": "worker.ts", "join-style": "join.css", "join-icon": "../src/icon.svg"}, outdir: folder,
  bundle: true, format: "esm", platform: "browser", target: ["es2022", "chrome123", "firefox120", "safari17.5"],
  loader: {".svg": "copy"}, entryNames: "[name]-[hash]", assetNames: "[name]-[hash]", minify: true, legalComments: "none", charset: "utf8", metafile: true, logLevel: "warning",
  // As in ../build.mjs.
  preserveSymlinks: true,
});
const outputs = Object.entries(metafile.outputs);
const nameOf = (source) => basename(outputs.find(([, {entryPoint, inputs}]) => entryPoint === source || Object.keys(inputs)[0] === source)[0]);
const page = readFileSync(join(here, "join.html"), "utf8").replace(/(?<==")(page\.ts|worker\.ts|join\.css|\.\.\/src\/icon\.svg)(?=")/g, (name) => `ui/${nameOf(name)}`);
writeFileSync(join(folder, "join.html"), page);
