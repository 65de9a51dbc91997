// Writes records to the topic "payments", which it creates if need be. Node 18+, no packages.
const url = process.env.RIACHO_URL ?? "http://localhost:8080";

async function call(path, body) {
  const response = await fetch(url + path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const answer = await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), answer);
  return answer;
}

// The gateway says whether a repetition is worth it, and whether it could write records twice.
async function callAgain(path, body, attempts = 5) {
  for (let attempt = 1; ; attempt++) {
    try {
      return await call(path, body);
    } catch (error) {
      const safe = error.retryable && !error.may_have_applied;
      if (!safe || attempt === attempts) throw error;
      await new Promise((resolve) => setTimeout(resolve, 100 * 2 ** attempt));
    }
  }
}

try {
  await call("/v1/topics", { name: "payments", partitions: 3 });
} catch (error) {
  if (error.code !== "TOPIC_ALREADY_EXISTS") throw error;
}

const { results } = await callAgain("/v1/topics/payments/records", {
  records: [
    { key: "ana", value: { amount: 12, currency: "BRL" } },
    { key: "bia", value: { amount: 7, currency: "BRL" }, headers: { source: "web" } },
    { key: "ana", value: { amount: 30, currency: "BRL" } },
  ],
});
for (const { partition, base_offset, count } of results) {
  console.log(`partition ${partition}: ${count} records from offset ${base_offset} on`);
}
