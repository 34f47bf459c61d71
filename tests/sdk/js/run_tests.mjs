// Checks the types of the tests, bundles each with the package's sources, and runs them: run_tests.py calls it.
import {execFileSync, spawnSync} from "node:child_process";
import {existsSync, mkdtempSync, rmSync} from "node:fs";
import {tmpdir} from "node:os";
import {dirname, join} from "node:path";
import {fileURLToPath, pathToFileURL} from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const package_ = join(here, "../../../sdk/js");
const modules = join(package_, "node_modules");
const {build} = await import(pathToFileURL(join(modules, "esbuild/lib/main.js")).href);

// Always: the messages may have changed since.
execFileSync(process.execPath, [join(package_, "build.mjs")], {stdio: "inherit"});
const types = spawnSync(process.execPath, [join(modules, "typescript/bin/tsc"), "-p", here], {stdio: "inherit"});
if (types.status !== 0) process.exit(1);

const folder = mkdtempSync(join(tmpdir(), "sheaf-js-"));
try {
  await build({
    entryPoints: process.argv.slice(2).map((file) => join(here, file)),
    outdir: folder, outExtension: {".js": ".mjs"}, bundle: true, format: "esm", platform: "node", target: "node18",
    nodePaths: [modules], sourcemap: "inline", logLevel: "warning",
    // Packages in CommonJS ask for Node's own modules by `require`.
    // It looks for files of its own beside itself.
    plugins: [{
      name: "playwright",
      setup: ({onResolve}) => onResolve({filter: /^playwright-core$/}, () => (
        {path: pathToFileURL(join(modules, "playwright-core/index.mjs")).href, external: true})),
    }],
    banner: {js: 'import {createRequire} from "node:module"; const require = createRequire(import.meta.url);'},
  });
  const files = process.argv.slice(2).map((file) => join(folder, file.replace(/\.ts$/, ".mjs")));
  const missing = files.filter((file) => !existsSync(file));
  if (missing.length > 0) throw new Error(`nothing was built of ${missing.join(", ")}`);
  process.exitCode = spawnSync(process.execPath, ["--enable-source-maps", "--test", "--test-timeout=200000", ...files], {stdio: "inherit"}).status ?? 1;
} finally {
  rmSync(folder, {recursive: true, force: true});
}
