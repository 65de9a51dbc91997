// Writes each line of stdin once and in order to a partition of "payments", however often it has to
// be sent. Node 18+, no packages. The topic must exist.
//   seq 100 | node idempotent.mjs [partition]
import { createInterface } from "node:readline";

const url = process.env.RIACHO_URL ?? "http://localhost:8080";
const path = `/v1/topics/payments/partitions/${process.argv[2] ?? 0}/records`;

async function call(path, body, headers = {}) {
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), answer);
  return answer;
}

const FORGOTTEN = ["OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "UNKNOWN_PRODUCER_ID"];

let id; // Our producer id, requested when it is needed.
let epoch = 0;
let next = 0; // The number of the next record.

async function send(records, attempts = 10) {
  let inDoubt = false; // Whether an attempt without an answer may have been written.
  for (let attempt = 1; ; attempt++) {
    try {
      id ??= (await call("/v1/producers", {})).producer_id;
      const { results } = await call(path, { records }, {
        "riacho-producer-id": id,
        "riacho-producer-epoch": epoch,
        "riacho-sequence": next,
      });
      next = (next + records.length) % 2 ** 31;
      return results[0].base_offset;
    } catch (error) {
      if (error.code === "DUPLICATE_SEQUENCE_NUMBER") {
        next = (next + records.length) % 2 ** 31;
        return -1; // It is written, but its offset is no longer known.
      }
      inDoubt ||= error.status === undefined || error.may_have_applied;
      const isForgotten = FORGOTTEN.includes(error.code) && !inDoubt;
      if (isForgotten) [id, epoch, next] = [undefined, 0, 0]; // As a new producer.
      const again = isForgotten || error.status === undefined || error.retryable || error.may_have_applied;
      if (!again || attempt === attempts) {
        // Its number is not used again: it may still be on its way, and the next epoch shuts it out.
        [epoch, next] = [epoch + 1, 0];
        throw Object.assign(error, { inDoubt });
      }
      await new Promise((resolve) => setTimeout(resolve, Math.min(100 * 2 ** attempt, 5000)));
    }
  }
}

let lines = [];
for await (const line of createInterface({ input: process.stdin })) {
  lines.push({ value: line });
  if (lines.length === 10) console.log(await send(lines.splice(0)));
}
if (lines.length) console.log(await send(lines));
