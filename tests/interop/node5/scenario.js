// What the official client for Node.js does with a proxy: `scenario.js ENDPOINT SSL PREFIX NAME...`.
// The scenarios run side by side. Each fact is one line, `> NAME: FACT`. Topics and groups begin
// with the prefix.
"use strict";
const { Producer, SimpleConsumer, PushConsumer, ConsumeResult } = require("rocketmq-client-nodejs");

const [endpoints, ssl, prefix, ...names] = process.argv.slice(2);
const silent = { info() {}, warn() {}, error() {}, debug() {} };
const common = { endpoints, namespace: "", sslEnabled: ssl === "true", logger: silent, requestTimeout: 5000 };
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const bodies = (messages) => messages.map((m) => m.body.toString()).sort().join(" ");

function scenario(name) {
  const topic = prefix + name;
  return {
    topic,
    say: (text) => console.log(`> ${name}: ${text}`),
    async producer() {
      const producer = new Producer({ ...common, topic });
      await producer.startup();
      return producer;
    },
    // A simple consumer of a group that has begun: it gets what is sent from now on.
    async simple(group, expression) {
      const subscriptions = new Map([[topic, expression]]);
      const consumer = new SimpleConsumer({
        ...common, consumerGroup: prefix + group, subscriptions, awaitDuration: 5000,
      });
      await consumer.startup();
      await consumer.receive(1, 10000);
      return consumer;
    },
  };
}

async function receive(consumer, count, seconds) {
  const got = [];
  const end = Date.now() + seconds * 1000;
  while (got.length < count && Date.now() < end) got.push(...(await consumer.receive(16, 20000)));
  return got;
}

const scenarios = {
  async normal(s) {
    const tags = await s.simple("tags", "a || b");
    const producer = await s.producer();
    for (let i = 0; i < 6; i++) {
      await producer.send({
        topic: s.topic, tag: "abc"[i % 3], keys: [`k${i}`], body: Buffer.from(`m${i}`),
        properties: new Map([["n", `${i}`]]),
      });
    }
    const got = await receive(tags, 4, 30);
    const facts = got.map((m) =>
      `${m.body} ${m.tag} ${m.keys} ${m.properties.get("n")} ${m.deliveryAttempt}`);
    facts.sort().forEach(s.say);
    for (const message of got.slice(1)) await tags.ack(message);
    const begun = Date.now();
    await tags.changeInvisibleDuration(got[0], 1000);
    const again = await receive(tags, 1, 30);
    s.say(`back after ${Date.now() - begun} ms`);
    s.say(`again ${bodies(again) === bodies(got.slice(0, 1))} ${again[0].deliveryAttempt}`);
    await tags.ack(again[0]);
    s.say(`left ${(await receive(tags, 1, 12)).length}`);
  },

  async push(s) {
    const attempts = {};
    const consume = async (message) => {
      const body = message.body.toString();
      attempts[body] = (attempts[body] || 0) + 1;
      const fails = (body === "p1" && message.deliveryAttempt < 2) || body === "p2";
      return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
    };
    const consumer = new PushConsumer({
      ...common, consumerGroup: s.topic, subscriptions: new Map([[s.topic, "*"]]),
      messageListener: { consume },
    });
    await consumer.startup();
    await sleep(3000);
    const producer = await s.producer();
    for (let i = 0; i < 7; i++) await producer.send({ topic: s.topic, body: Buffer.from(`p${i}`) });
    const count = () => Object.values(attempts).reduce((a, b) => a + b, 0);
    for (const end = Date.now() + 90000; count() < 10 && Date.now() < end;) await sleep(100);
    await sleep(1000 * process.env.SETTLE_SECONDS);
    Object.keys(attempts).sort().forEach((body) => s.say(`${body} ${attempts[body]}`));
  },
};

Promise.all(names.map((name) => scenarios[name](scenario(name)))).then(
  () => process.exit(0),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
