// Prints the records of "payments", and goes on where the last run stopped. Node 18+, no packages.
//   node consume.mjs [file that remembers the offsets]
import { existsSync, readFileSync, writeFileSync } from "node:fs";

const url = process.env.RIACHO_URL ?? "http://localhost:8080";
const memory = process.argv[2] ?? "payments.offsets";
const offsets = existsSync(memory) ? JSON.parse(readFileSync(memory, "utf8")) : {};

async function call(path, body) {
  const init = body && {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  };
  const response = await fetch(url + path, init);
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), answer);
  return answer;
}

const { partitions } = await call("/v1/topics/payments/partitions");

for (;;) {
  // One call for all partitions; it waits up to a second for the first record.
  const fetched = await call("/v1/fetch", {
    partitions: partitions.map(({ partition }) => ({
      topic: "payments",
      partition,
      ...(partition in offsets ? { offset: offsets[partition] } : { at: "earliest" }),
    })),
    max_wait_ms: 1000,
    value_format: "json",
  });
  let count = 0;
  for (const { partition, records, next_offset, error } of fetched.partitions) {
    if (error) throw Object.assign(new Error(error.detail), error);
    for (const { offset, key, value } of records) {
      console.log(partition, offset, key, JSON.stringify(value));
      count++;
    }
    offsets[partition] = next_offset;
  }
  if (count === 0) break; // Nothing came for a second.
  // First the work, then the offset: a crash in between repeats records and loses none.
  writeFileSync(memory, JSON.stringify(offsets));
}
