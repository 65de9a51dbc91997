// Writes records to the topic "payments", which it creates if need be. Node 18+, no packages.
import { randomUUID } from "node:crypto";

const url = process.env.RIACHO_URL ?? "http://localhost:8080";

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

// The key makes all tries one call: it is done once, and each try is answered as the first.
async function callOnce(path, body, attempts = 5) {
  const headers = { "idempotency-key": randomUUID() };
  for (let attempt = 1; ; attempt++) {
    try {
      return await call(path, body, headers);
    } catch (error) {
      // Without a status there was no answer: it may have been written, and a retry finds out.
      const again = error.status === undefined || error.retryable || error.may_have_applied;
      if (!again || attempt === attempts) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
    }
  }
}

try {
  await call("/v1/topics", { name: "payments", partitions: 3 });
} catch (error) {
  if (error.code !== "TOPIC_ALREADY_EXISTS") throw error;
}

const topic = "payments";
const { results } = await callOnce("/v1/atomic", {
  records: [
    { topic, key: "ana", value: { amount: 12, currency: "BRL" } },
    { topic, key: "bia", value: { amount: 7, currency: "BRL" }, headers: { source: "web" } },
    { topic, key: "ana", value: { amount: 30, currency: "BRL" } },
  ],
});
for (const { partition, base_offset, count } of results) {
  console.log(`partition ${partition}: ${count} records from offset ${base_offset} on`);
}
