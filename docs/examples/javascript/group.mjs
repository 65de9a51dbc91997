// Shares the topic "payments" with all running copies of this program, in any language: each record is
// printed by one member of the group. Node 18+, no packages. Ctrl-C leaves the group.
//   node group.mjs [name of the group] [session timeout in ms]
const url = process.env.RIACHO_URL ?? "http://localhost:8080";
const group = `/v1/groups/${process.argv[2] ?? "accounting"}`;
const session_timeout_ms = Number(process.argv[3] ?? 45000);

async function call(method, path, body) {
  const response = await fetch(url + path, {
    method,
    headers: { "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  const answer = response.status === 204 ? {} : await response.json();
  if (!response.ok) throw Object.assign(new Error(answer.detail), answer);
  return answer;
}

const name = ({ topic, partition }) => `${topic}/${partition}`;

let member; // Our id, and in the path of what we ask.
let generation;
let positions = new Map(); // What we read: name of the partition -> where we go on in it.
let leaving = false;

const owned = () => [...positions.values()].map(({ topic, partition }) => ({ topic, partition }));

// Drop partitions that are no longer assigned to us; the next call omits them from `owned`, and then
// the new owner gets them. A new one has no position yet: the gateway begins at the committed offset.
function adopt(reply) {
  generation = reply.generation;
  const assigned = new Set(reply.assignment.map(name));
  for (const key of positions.keys()) if (!assigned.has(key)) positions.delete(key);
}

async function join() {
  const reply = await call("POST", `${group}/members`, {
    topics: ["payments"],
    session_timeout_ms,
    client_id: "group.mjs",
  });
  member = reply.member_id;
  positions = new Map();
  adopt(reply);
}

const beat = () => call("POST", `${group}/members/${member}/heartbeat`, { generation, owned: owned() });

async function commit(offsets) {
  if (offsets.length === 0) return;
  try {
    await call("POST", `${group}/offsets`, { member_id: member, generation, offsets });
  } catch (error) {
    if (error.code !== "ILLEGAL_GENERATION") throw error;
    // The group has changed meanwhile. What it wants back from us is still ours to commit, in the
    // new generation, as long as we say that we own it.
    const reply = await beat();
    const ours = new Set([...reply.assignment, ...reply.revoke].map(name));
    generation = reply.generation;
    await commit(offsets.filter((each) => ours.has(name(each))));
    adopt(reply);
  }
}

async function step() {
  // One call to keep the session, get the assignment, and fetch. Work that takes longer than the
  // session would need heartbeats beside it.
  const reply = await call("POST", `${group}/members/${member}/poll`, {
    generation,
    owned: owned(),
    positions: [...positions.values()],
    auto_offset_reset: "earliest",
    max_wait_ms: 500,
    value_format: "json",
  });
  adopt(reply);
  const done = [];
  for (const { topic, partition, records, next_offset, error } of reply.partitions) {
    if (error) throw Object.assign(new Error(error.detail), error);
    for (const { offset, key, value } of records) {
      console.log(partition, offset, key, JSON.stringify(value));
    }
    positions.set(name({ topic, partition }), { topic, partition, offset: next_offset });
    if (records.length > 0) done.push({ topic, partition, offset: next_offset });
  }
  // First the work, then the commit: a crash in between repeats records and loses none.
  await commit(done);
}

for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => (leaving = true));

while (!leaving) {
  try {
    await (member === undefined ? join() : step());
  } catch (error) {
    if (error.code === "UNKNOWN_MEMBER_ID") {
      member = undefined; // The session ended; what we read is others' now.
    } else if (error.code === "ILLEGAL_GENERATION") {
      adopt(await beat());
    } else if (error.retryable || error.cause) {
      await new Promise((resolve) => setTimeout(resolve, 200)); // Or no connection: try again.
    } else {
      throw error;
    }
  }
}
if (member !== undefined) await call("DELETE", `${group}/members/${member}`);
