// Writes or reads the values of a file with Confluent's client for JavaScript, or makes its calls.
//
// Usage: node schemas.mjs write|read|calls <file that says where and what>
//
// `write` sends each value twice, with the id of its schema before it and in a header; `read` prints
// what each record says, by topic and key.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(`${process.cwd()}/`);
const { Kafka, logLevel } = require("kafkajs");
const schemas = require("@confluentinc/schemaregistry");
const { createFileRegistry, createMutableRegistry, fromBinary, fromJson, toJson } = require("@bufbuild/protobuf");
const { FileDescriptorSetSchema } = require("@bufbuild/protobuf/wkt");

const [task, file] = process.argv.slice(2);
const given = JSON.parse(readFileSync(file, "utf8"));
const client = schemas.SchemaRegistryClient.newClient({
  baseURLs: [given.registry],
  ...(given.user && { basicAuthCredentials: { credentialsSource: "USER_INFO", userInfo: given.user } }),
});
const kafka = new Kafka({ clientId: "schemas", brokers: [given.bootstrap], logLevel: logLevel.ERROR });
const messages = createFileRegistry(fromBinary(FileDescriptorSetSchema, Buffer.from(given.descriptors, "base64")));
const VALUE = schemas.SerdeType.VALUE;
const FORMS = { prefix: schemas.PrefixSchemaIdSerializer, header: schemas.HeaderSchemaIdSerializer };

// Bytes are {"$bytes": "<hex>"} in the file, and buffers here.
function packed(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(packed);
  if (typeof value.$bytes === "string") return Buffer.from(value.$bytes, "hex");
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, packed(each)]));
}

function unpacked(value) {
  if (value === null || typeof value !== "object") return value;
  if (Array.isArray(value)) return value.map(unpacked);
  if (Buffer.isBuffer(value)) return { $bytes: value.toString("hex") };
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, unpacked(each)]));
}

async function serializer(one, form) {
  const conf = { schemaIdSerializer: FORMS[form] };
  if (one.type === "PROTOBUF") {
    const registry = createMutableRegistry(messages);
    return new schemas.ProtobufSerializer(client, VALUE, { ...conf, registry, autoRegisterSchemas: true });
  }
  const schema = { schemaType: one.type, schema: one.text, references: one.references ?? [] };
  await client.register(`${one.name}-value`, schema, false);
  const made = one.type === "AVRO" ? schemas.AvroSerializer : schemas.JsonSerializer;
  return new made(client, VALUE, { ...conf, useLatestVersion: true, autoRegisterSchemas: false });
}

async function write() {
  const producer = kafka.producer();
  await producer.connect();
  for (const one of given.cases) {
    const value = one.type === "PROTOBUF" ? fromJson(messages.getMessage(one.message), one.value) : packed(one.value);
    for (const form of Object.keys(FORMS)) {
      const headers = {};
      const bytes = await (await serializer(one, form)).serialize(one.name, value, headers);
      await producer.send({ topic: one.name, messages: [{ key: `javascript ${form}`, value: bytes, headers }] });
    }
  }
  await producer.disconnect();
  return null;
}

function deserializers() {
  const made = { AVRO: schemas.AvroDeserializer, JSON: schemas.JsonDeserializer, PROTOBUF: schemas.ProtobufDeserializer };
  return Object.fromEntries(Object.entries(made).map(([type, one]) => [type, new one(client, VALUE, {})]));
}

async function read() {
  const of = deserializers();
  const known = new Map(given.cases.map((one) => [one.name, one]));
  const seen = {};
  let left = given.expected;
  const consumer = kafka.consumer({ groupId: "javascript", sessionTimeout: 10000, heartbeatInterval: 500 });
  await consumer.connect();
  await consumer.subscribe({ topics: [...known.keys()], fromBeginning: true });
  await new Promise((resolve, reject) => {
    consumer.run({
      eachMessage: async ({ topic, message }) => {
        const one = known.get(topic);
        try {
          const value = await of[one.type].deserialize(topic, message.value, message.headers);
          const plain = one.type === "PROTOBUF" ? toJson(messages.getMessage(one.message), value) : unpacked(value);
          (seen[topic] ??= {})[`${message.key}`] = plain;
        } catch (error) {
          reject(new Error(`${topic} ${message.key}: ${error.stack}`));
        }
        if (--left === 0) resolve();
      },
    });
  });
  await consumer.disconnect();
  return seen;
}

// Each call of the client: what it found, or the status and the code of its error.
async function calls() {
  // Some of its calls do not escape what a path must not hold.
  const [mine, theirs] = ["mine-js", "theirs"];
  const typed = (type) => ({
    schemaType: "AVRO",
    schema: `{"type":"record","name":"R","fields":[{"name":"a","type":"${type}"}]}`,
  });
  const labelled = { ...typed("int"), metadata: { properties: { owner: "ana" } } };
  const { id, guid } = await client.registerFullResponse(mine, labelled, false);
  const steps = {
    register: async () => (await client.register(mine, labelled, true)) === id,
    id: async () => (await client.getBySubjectAndId(mine, id)).schema,
    guid: async () => (await client.getByGuid(guid)).schema,
    lookup: async () => (await client.getId(mine, labelled, false)) === id,
    version: async () => client.getVersion(mine, labelled, false, true),
    latest: async () => (await client.getLatestSchemaMetadata(mine)).version,
    described: async () => (await client.getSchemaMetadata(mine, 1, true)).subject,
    labelled: async () => (await client.getLatestWithMetadata(mine, { owner: "ana" }, true)).version,
    "labelled by another": async () => client.getLatestWithMetadata(mine, { owner: "bob" }, true),
    versions: () => client.getAllVersions(mine),
    subjects: () => client.getAllSubjects(),
    compatible: () => client.testSubjectCompatibility(mine, typed("long")),
    incompatible: () => client.testCompatibility(mine, 1, typed("string")),
    refused: () => client.register(mine, typed("string"), false),
    invalid: () => client.register(mine, { schemaType: "AVRO", schema: "{" }, false),
    "no level": () => client.getCompatibility(mine),
    "set level": () => client.updateCompatibility(mine, "FULL"),
    level: () => client.getCompatibility(mine),
    "set config": () => client.updateConfig(mine, { compatibility: "NONE", normalize: true }),
    config: () => client.getConfig(mine),
    "default level": () => client.getDefaultCompatibility(),
    "set default level": () => client.updateDefaultConfig({ compatibility: "NONE" }),
    theirs: () => client.getLatestSchemaMetadata(theirs),
    "register theirs": () => client.register(theirs, typed("int"), false),
    association: () => client.getAssociationsByResourceName("t", "-", "topic", ["value"], null, 0, -1),
    "delete too soon": () => client.deleteSubject(mine, true),
    "delete version": () => client.deleteSubjectVersion(mine, 1, false),
    delete: () => client.deleteSubject(mine, false),
    "delete for ever": () => client.deleteSubjectVersion(mine, 1, true),
    gone: () => client.getAllVersions(mine),
  };
  const seen = {};
  for (const [name, step] of Object.entries(steps)) {
    try {
      seen[name] = await step();
    } catch (error) {
      seen[name] = `${error.status} ${error.errorCode ?? error.message}`;
    }
  }
  return seen;
}

console.log(JSON.stringify(await { write, read, calls }[task]()));
process.exit(0);
