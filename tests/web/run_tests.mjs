// Checks the types of the tests, bundles each with the sources of the dashboard, and runs them: run_tests.py calls it.
import {spawnSync} from "node:child_process";
import {existsSync, mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {dirname, join} from "node:path";
import {fileURLToPath, pathToFileURL} from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const modules = join(here, "../../web/node_modules");
const {build} = await import(pathToFileURL(join(modules, "esbuild/lib/main.js")).href);

const folder = mkdtempSync(join(tmpdir(), "sheaf-web-"));
const built = spawnSync(process.execPath, [join(here, "../../web/build.mjs"), join(folder, "built")], {stdio: "inherit"});
if (built.status !== 0) process.exit(1);
// The page for tabs that compute has the package of sdk/js in it.
const sdk = join(here, "../../sdk/js");
for (const args of [[join(sdk, "build.mjs")], [join(here, "../../web/join/build.mjs"), join(folder, "join")]]) {
  if (spawnSync(process.execPath, args, {stdio: "inherit"}).status !== 0) process.exit(1);
}
const types = spawnSync(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", here], {stdio: "inherit"});
if (types.status !== 0) process.exit(1);
try {
  await build({
    entryPoints: process.argv.slice(2).map((file) => join(here, file)),
    outdir: folder, outExtension: {".js": ".mjs"}, bundle: true, format: "esm", platform: "node", target: "node20",
    jsx: "automatic", jsxImportSource: "preact", nodePaths: [modules], sourcemap: "inline", logLevel: "warning",
    // They look for files of their own beside themselves.
    plugins: [{
      name: "playwright",
      setup: ({onResolve}) => onResolve({filter: /^playwright-core$/}, () => (
        {path: pathToFileURL(join(modules, "playwright-core/index.mjs")).href, external: true})),
    }],
  });
  const files = process.argv.slice(2).map((file) => join(folder, file.replace(/\.ts$/, ".mjs")));
  const missing = files.filter((file) => !existsSync(file));
  if (missing.length > 0) throw new Error(`nothing was built of ${missing.join(", ")}`);
  process.exitCode = spawnSync(process.execPath, ["--enable-source-maps", "--test", "--test-timeout=600000", ...files], {
    stdio: "inherit", env: {...process.env, SHEAF_WEB_BUILT: join(folder, "built"), SHEAF_JOIN_BUILT: join(folder, "join")},
  }).status ?? 1;
} finally {
  rmSync(folder, {recursive: true, force: true});
}
