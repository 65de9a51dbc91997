// Copies with kafkajs, in transactions with the offsets of a group: half of them are aborted first.
import { createRequire } from "node:module";

const [bootstrap, from, to] = process.argv.slice(2);
const require = createRequire(`${process.cwd()}/`);
const { Kafka, Partitioners, logLevel } = require("kafkajs");

const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR });
const producer = kafka.producer({
  transactionalId: to,
  idempotent: true,
  maxInFlightRequests: 1,
  createPartitioner: Partitioners.DefaultPartitioner,
});
const consumer = kafka.consumer({ groupId: to, sessionTimeout: 10000, heartbeatInterval: 500 });
await producer.connect();
await consumer.connect();
await consumer.subscribe({ topic: from, fromBeginning: true });

let copied = 0;
async function copy(batch, commits) {
  const transaction = await producer.transaction();
  const messages = batch.messages.map(({ key, value }) => ({ key, value }));
  await transaction.send({ topic: to, messages });
  const offset = (BigInt(batch.lastOffset()) + 1n).toString();
  const partitions = [{ partition: batch.partition, offset }];
  await transaction.sendOffsets({ consumerGroupId: to, topics: [{ topic: from, partitions }] });
  await (commits ? transaction.commit() : transaction.abort());
  if (commits) copied += messages.length;
}

await new Promise((resolve, reject) => {
  consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
  consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, heartbeat }) => {
      await copy(batch, false);
      await copy(batch, true);
      await heartbeat();
      if (copied >= 300) resolve();
    },
  });
});
console.log(JSON.stringify(copied));
await consumer.disconnect();
await producer.disconnect();
