// As count_words.sh, in a process that stays. docs/reference/runner.md says what the lines are.
//
//   sheaf-worker --server HOST:7433 --serve count_words="node count_words.js" --data texts=FOLDER
const fs = require("fs");
const lines = require("readline").createInterface({ input: fs.createReadStream(null, { fd: 3 }) });
const say = (line) => fs.writeSync(4, JSON.stringify(line) + "\n");

function countWords({ task, directory }) {
  const folder = task.data.texts;
  const texts = fs.readdirSync(folder).filter((name) => name.endsWith(".txt"));
  const words = texts.flatMap((name) => fs.readFileSync(`${folder}/${name}`, "utf8").split(/\s+/).filter(Boolean));
  const header = Buffer.from(JSON.stringify({ words: { dtype: "I64", shape: [], data_offsets: [0, 8] } }));
  const result = Buffer.alloc(8 + header.length + 8);
  result.writeBigUInt64LE(BigInt(header.length), 0);
  header.copy(result, 8);
  result.writeBigInt64LE(BigInt(words.length), 8 + header.length);
  fs.writeFileSync(`${directory}/result.tmp`, result);
  fs.renameSync(`${directory}/result.tmp`, `${directory}/result.safetensors`);
}

lines.on("line", (line) => {
  try { countWords(JSON.parse(line)); say({ done: true }); }
  catch (error) { say({ failed: error.name, message: error.message }); }
});
