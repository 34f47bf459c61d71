// What the pages compute: texts, lists, scales, how sparse a round is.
import assert from "node:assert/strict";
import test from "node:test";

import {joined} from "../../web/src/live/page.js";
import type {RoundRow} from "../../web/src/live/rounds.js";
import {curvesOf, ticksBetween} from "../../web/src/text/curves.js";
import {commandTo, serverAddress, shellWord, unitsOf} from "../../web/src/text/commands.js";
import {coordinatesOf, denseBytesOf, isSparse} from "../../web/src/text/density.js";
import {age, at, bytes, count, duration, metric, percent, plural, seconds, sentence} from "../../web/src/text/format.js";
import {carriedOn, placeOf, stalenessOf, stalenessText, stragglerTexts} from "../../web/src/text/policies.js";

test("Numbers are written as `sheaf` writes them", () => {
  // The examples of tests/cli and cli/terminal/human_text.h.
  for (const [value, text] of [[0, "0s"], [0.25, "250ms"], [3.81, "3.81s"], [12.34, "12.3s"], [72, "1m12s"], [7500, "2h05m"], [273_600, "3d04h"],
                               [0.000285, "285us"], [59.96, "1m00s"], [NaN, "–"]] as const) assert.equal(duration(value), text);
  for (const [value, text] of [[0, "0 B"], [640, "640 B"], [58_000, "58 kB"], [5_100_000, "5.1 MB"], [999_600, "1.0 MB"], [150e6, "150 MB"]] as const) {
    assert.equal(bytes(value), text);
  }
  assert.equal(count("56942"), "56,942");
  assert.equal(count(undefined), "0");
  assert.equal(metric(9.778505740851777), "9.77851");
  assert.equal(metric(1e-9), "1e-9");
  assert.equal(percent(0.0271), "2.7 %");
  assert.equal(percent(0.74), "74 %");
  assert.equal(plural(1, "task"), "1 task");
  assert.equal(plural(1200, "task"), "1,200 tasks");
  assert.equal(seconds("1.5s"), 1.5);
  // A round may take less than a millisecond.
  assert.ok(Math.abs(at("2026-01-31T12:00:00.001250Z") - at("2026-01-31T12:00:00.000750Z") - 0.5) < 1e-3);
  assert.equal(at("2026-01-31T12:00:00.250Z"), Date.parse("2026-01-31T12:00:00.250Z"));
  assert.equal(at("2026-01-31T12:00:00Z"), Date.parse("2026-01-31T12:00:00Z"));
  assert.ok(isNaN(at(undefined)));
  assert.equal(sentence("there is no round r-1"), "There is no round r-1.");
  assert.equal(sentence("The server does not answer."), "The server does not answer.");
  const now = Date.parse("2026-01-31T12:00:00Z");
  for (const [time, text] of [["2026-01-31T11:59:56Z", "4s"], ["2026-01-31T11:29:00Z", "31m"], ["2026-01-31T10:00:00Z", "2h"],
                              ["2026-01-28T12:00:00Z", "3d"], ["2026-01-31T12:00:09Z", "0s"], [undefined, "–"]] as const) assert.equal(age(time, now), text);
});

const idOf = (item: string) => item;

test("A newer first page joins what is known behind it: nothing is lost, nothing comes twice", () => {
  const known = {items: ["d", "c", "b", "a"], next: "behind a"};
  assert.deepEqual(joined({items: ["f", "e", "d"], next: "behind d"}, known, idOf), {items: ["f", "e", "d", "c", "b", "a"], next: "behind a"});
  assert.deepEqual(joined({items: ["d", "c"], next: "behind c"}, known, idOf), known);
  // More came between than a page has: what is behind it is asked for anew.
  assert.deepEqual(joined({items: ["z", "y"], next: "behind y"}, known, idOf), {items: ["z", "y"], next: "behind y"});
  // All that there is.
  assert.deepEqual(joined({items: ["d", "c"]}, known, idOf), {items: ["d", "c"]});
  // Some have gone.
  assert.deepEqual(joined({items: ["e", "c"], next: "behind c"}, known, idOf), {items: ["e", "c", "b", "a"], next: "behind a"});
});

test("Scales have a handful of round numbers around all values", () => {
  for (const [low, high] of [[0, 1], [0.31, 0.553], [9.7, 312], [-3, -2.99], [5, 5], [0, 0], [1e-12, 3e-12], [1e15, 3e15]] as const) {
    const ticks = ticksBetween(low, high);
    assert.ok(ticks.length >= 2 && ticks.length <= 7, `${low} to ${high}: ${ticks}`);
    assert.ok(ticks[0]! <= low && ticks.at(-1)! >= high, `${low} to ${high}: ${ticks}`);
    assert.ok(ticks.every((tick, i) => i === 0 || tick > ticks[i - 1]!), `${ticks}`);
  }
  assert.deepEqual(ticksBetween(9.7, 312), [0, 100, 200, 300, 400]);
});

test("Curves are those of a job, oldest first, of which lists have the newest first", () => {
  const round = (job: string, metrics: Record<string, number>) => ({job, metrics}) as unknown as RoundRow;
  const curves = curvesOf([round("a", {loss: 1}), round("b", {loss: 9}), round("", {loss: 7}), round("a", {loss: 2, examples: 3}), round("a", {})]);
  assert.deepEqual([...curves].map(([job, of]) => [job, Object.fromEntries(of)]), [["a", {loss: [2, 1], examples: [3]}], ["b", {loss: [9]}]]);
  assert.equal(curvesOf([round("a", {})]).size, 0, "a job that measured nothing has none");
});

test("Commands to copy lead to the server of the page and to the population, whatever its name", () => {
  assert.equal(serverAddress("http://127.0.0.1:7480/#/rounds?population=a/b"), "http://127.0.0.1:7480");
  assert.equal(serverAddress("https://example.org/sheaf/#/"), "https://example.org/sheaf");
  assert.equal(shellWord("edge-1.north_2"), "edge-1.north_2");
  assert.equal(shellWord("$(reboot) it's"), "'$(reboot) it'\\''s'");
  assert.equal(shellWord(""), "''");
  const server = "http://127.0.0.1:7480";
  assert.equal(commandTo("sheaf-worker", {server, population: "default", hasTokens: false}), "sheaf-worker --server http://127.0.0.1:7480");
  assert.equal(commandTo("sheaf-worker", {server, population: "a b", hasTokens: true}), "sheaf-worker --server http://127.0.0.1:7480 --population 'a b' --token-file FILE");
  assert.deepEqual(unitsOf("sheaf round create -f round.json --wait --server S"), ["sheaf", "round", "create", "-f round.json", "--wait", "--server S"]);
  for (const text of ["sheaf task requeue", "sheaf worker drain --undo NAME", "a  b -- c", "-", ""]) assert.equal(unitsOf(text).join(" "), text);
});

test("A round's outputs are compared with the same as dense tensors", () => {
  const rows = {name: "rows", operator: "weighted_coordinate_mean", dtype: "FLOAT32", denseShape: ["56914", "500"], indexDims: 1} as const;
  const bias = {name: "bias", operator: "weighted_mean", dtype: "FLOAT32", denseShape: ["500"]} as const;
  assert.equal(denseBytesOf([rows as never, bias as never]), 56914 * 500 * 4 + 500 * 4);
  assert.equal(coordinatesOf(rows as never), 56914);
  assert.equal(coordinatesOf({operator: "slices_sum", denseShape: ["7", "3"]}), 7);
  assert.equal(coordinatesOf({operator: "sparse_sum", denseShape: ["7", "3"]}), 21);
  assert.ok(isSparse(rows as never) && isSparse({operator: "slices_sum"}) && !isSparse(bias as never));
  assert.equal(denseBytesOf([{operator: "sum", keyType: "STRING_KEYS"}]), null);
});

test("Contributions are listed by their staleness, freshest first, with what they weigh", () => {
  assert.deepEqual(stalenessOf({}), []);
  const contributionsByStaleness = {10: "1", 3: "2", 0: "17"};
  const weights = (staleness: object) => stalenessOf({spec: {staleness}, contributionsByStaleness}).map(({weight}) => Number(weight.toPrecision(3)));
  assert.deepEqual(stalenessOf({contributionsByStaleness}).map(({rounds, contributions}) => [rounds, contributions]), [[0, 17], [3, 2], [10, 1]]);
  assert.deepEqual(weights({}), [1, 1, 1]);
  assert.deepEqual(weights({function: "CONSTANT", exponent: 2}), [1, 1, 1]);
  assert.deepEqual(weights({function: "POLYNOMIAL"}), [1, 0.5, 0.302]);
  assert.deepEqual(weights({function: "POLYNOMIAL", exponent: 1}), [1, 0.25, 0.0909]);
  assert.deepEqual([0, 1, 2].map(stalenessText), ["of its own", "through 1 round", "through 2 rounds"]);
});

test("Tasks that were carried over went on in one round", () => {
  assert.deepEqual(placeOf("r-7k2m9q4x/17"), {round: "r-7k2m9q4x", index: "17"});
  assert.deepEqual(placeOf("nonsense"), {round: "", index: "nonsense"});
  assert.equal(carriedOn([{state: "TASK_SUCCEEDED"}, {}]), null);
  assert.deepEqual(carriedOn([{}, {carriedTo: "r-b/4"}, {carriedTo: "r-b/5"}]), {round: "r-b", tasks: 2});
});

test("What is done about stragglers is a sentence for each thing", () => {
  assert.deepEqual(stragglerTexts(undefined), []);
  assert.deepEqual(stragglerTexts({}), []);
  assert.deepEqual(stragglerTexts({speculate: true}), [
    "A second attempt begins beside one that takes longer than 1.5 times what 75 % of the others took, and than 100ms, when no more than 25 % of the tasks still run (known once 3 have succeeded)."]);
  assert.deepEqual(stragglerTexts({quantile: 0.999, finishedMin: 10, deadlineFactor: 4}), [
    "An attempt is lost that takes longer than 4 times what 99.9 % of the others took (known once 10 have succeeded)."]);
});
