// Reads a fleet's topics with mqtt.js, by the AsyncAPI document alone: no field of any message is named here but those
// of a stream's description, which give symbols their times and names.
//
//   npm install mqtt @msgpack/msgpack
//   fugu gateway asyncapi > asyncapi.json
//   node subscribe.mjs asyncapi.json mqtt://127.0.0.1:1883 home

import { readFileSync } from "node:fs";
import { decodeMulti } from "@msgpack/msgpack";
import mqtt from "mqtt";

const [file, url, fleet, username, password] = process.argv.slice(2);
const api = JSON.parse(readFileSync(file, "utf8"));

const follow = (node) =>
  node?.$ref ? follow(node.$ref.slice(2).split("/").reduce((found, key) => found[key], api)) : node;

const channels = Object.values(api.channels)
  .filter((channel) => channel["x-fugu-readers"].includes("site"))
  .map((channel) => {
    const address = channel.address.replace("{fleet}", fleet);
    return {
      filter: address.replace(/{\w+}/g, "+"),
      form: new RegExp(`^${address.replace(/{(\w+)}/g, "(?<$1>[^/]+)")}$`),
      messages: Object.values(channel.messages).map(follow),
    };
  });

function unpacked(bytes, packed, fields) {
  const size = (word) => Number(typeof word === "string" ? fields[word] : word);
  let bit = 0;
  const taken = (part) => {
    let value = 0;
    for (let i = 0; i < size(part.bits); i++, bit++) {
      value = value * 2 + ((bytes[bit >> 3] >> (7 - (bit & 7))) & 1);
    }
    return part.type === "int" && value >= 2 ** (size(part.bits) - 1) ? value - 2 ** size(part.bits) : value;
  };
  const each = packed.parts.reduce((bits, part) => bits + size(part.bits) * size(part.times), 0);
  const count = packed.count ? size(packed.count) : Math.floor((8 * bytes.length) / each);
  return Array.from({ length: count }, () =>
    Object.fromEntries(packed.parts.map((part) => [part.title, Array.from({ length: size(part.times) }, () => taken(part))])),
  );
}

// A decoded value, with the names that the schema has for it.
function named(schema, value) {
  if (schema.oneOf) return named(schema.oneOf.find((one) => one.maxItems === value.length), value);
  if (typeof value === "bigint") return Number.isSafeInteger(Number(value)) ? Number(value) : String(value);
  if (!Array.isArray(value)) return value;
  if (!Array.isArray(schema.items)) return value.map((one) => named(schema.items, one));
  const fields = Object.fromEntries(schema.items.map((item, i) => [item.title, named(item, value[i])]));
  for (const item of schema.items) {
    const packed = item["x-fugu-packed"];
    if (packed) fields[item.title] = unpacked(fields[item.title], packed, fields);
    else if (fields[item.title] instanceof Uint8Array) fields[item.title] = Buffer.from(fields[item.title]).toString("hex");
  }
  return fields;
}

function decoded(messages, payload) {
  if (messages[0].contentType === "application/json") {
    const fields = JSON.parse(payload.toString());
    const one = messages.find((message) => follow(message.payload).required.every((name) => name in fields));
    return { name: one.name, fields };
  }
  const [number, fields] = [...decodeMulti(payload, { useBigInt64: true })];
  const found = messages.find((message) => follow(message.payload).items[0].const === number);
  return { name: found.name, fields: named(follow(found.payload).items[1], fields) };
}

const descriptions = new Map();

function shown(where, { name, fields }) {
  const stream = `${where.device}/${where.stream}`;
  if (name === "Description") descriptions.set(stream, fields);
  const known = descriptions.get(stream);
  if (name !== "SymbolFrame" || known?.version !== fields.policy_version) return [`${name} ${JSON.stringify(fields)}`];
  const hasNames = known.table[0].length + 1 === known.states.length;
  return fields.symbols.map(({ symbol: [symbol] }, i) => {
    const tick = fields.first + i;
    const time = Date.parse(known.epoch) + (tick - fields.shift) * known.period_seconds * 1000;
    return `${new Date(time).toISOString()} ${stream} ${hasNames ? known.states[symbol] : symbol}`;
  });
}

const client = mqtt.connect(url, { username, password, protocolVersion: 5 });
client.on("connect", () => client.subscribe(channels.map(({ filter }) => filter), { qos: 1 }));
client.on("message", (topic, payload) => {
  const channel = channels.find(({ form }) => form.test(topic));
  if (!channel || payload.length === 0) return;
  try {
    const lines = shown(channel.form.exec(topic).groups ?? {}, decoded(channel.messages, payload));
    for (const line of lines) console.log(topic, line);
  } catch (error) {
    console.error(`${topic}: none of its messages (${error.name})`);
  }
});
client.on("error", (error) => {
  console.error(error.message);
  process.exit(1);
});
