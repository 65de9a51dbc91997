// Follows one partition of "payments" as server-sent events, and resumes after a lost connection.
// Node 18+, no packages.
//   node tail.mjs [partition] [stop after N records]
const url = process.env.RIACHO_URL ?? "http://localhost:8080";
const partition = process.argv[2] ?? "0";
const most = Number(process.argv[3] ?? Infinity);

let last; // The id of the newest event is its offset.
let count = 0;

while (count < most) {
  const headers = { accept: "text/event-stream" };
  if (last !== undefined) headers["last-event-id"] = last;
  try {
    const response = await fetch(`${url}/v1/topics/payments/partitions/${partition}/records`, {
      headers,
    });
    if (!response.ok) throw new Error((await response.json()).detail);
    let text = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
      const events = (text + chunk).split("\n\n");
      text = events.pop();
      for (const event of events) {
        const fields = Object.fromEntries(
          event.split("\n").map((line) => [line.split(": ", 1)[0], line.slice(line.indexOf(": ") + 2)]),
        );
        if (fields.id === undefined || count >= most) continue; // A heartbeat, or enough.
        console.log(fields.data);
        last = fields.id;
        count++;
      }
      if (count >= most) break;
    }
  } catch (error) {
    console.error(`${error.message}; trying again`);
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}
process.exit(0);
