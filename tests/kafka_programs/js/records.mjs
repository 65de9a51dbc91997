// Writes with kafkajs, reads with a group, and prints what it read: key, value, header, partition.
import { createRequire } from "node:module";

const [bootstrap, topic] = process.argv.slice(2);
const require = createRequire(`${process.cwd()}/`);
const { Kafka, CompressionTypes, logLevel } = require("kafkajs");

const kafka = new Kafka({ clientId: "kafkajs", brokers: [bootstrap], logLevel: logLevel.ERROR });
const admin = kafka.admin();
await admin.connect();
await admin.createTopics({ topics: [{ topic, numPartitions: 2 }], waitForLeaders: true });
await admin.disconnect();

const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
await producer.connect();
const messages = Array.from({ length: 20 }, (_, n) => ({
  key: `k${n % 4}`,
  value: `v${n}`,
  headers: { from: "kafkajs" },
}));
await producer.send({ topic, acks: -1, compression: CompressionTypes.GZIP, messages });
await producer.disconnect();

const consumer = kafka.consumer({ groupId: "kafkajs", sessionTimeout: 10000, heartbeatInterval: 500 });
await consumer.connect();
await consumer.subscribe({ topic, fromBeginning: true });
const all = new Promise((resolve) => {
  const seen = [];
  consumer.run({
    eachMessage: async ({ partition, message }) => {
      seen.push([`${message.key}`, `${message.value}`, `${message.headers.from}`, partition]);
      if (seen.length === messages.length) resolve(seen);
    },
  });
});
console.log(JSON.stringify(await all));
await consumer.disconnect();
