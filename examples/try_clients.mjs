/*
 * The official JavaScript client against the gateway of a mesh whose model knows tools.
 *
 *     npm install openai
 *     node examples/try_clients.mjs http://127.0.0.1:8000/v1 ['Is it warm in Bern?'] [key]
 */

import assert from "node:assert/strict";
import process from "node:process";

import OpenAI from "openai";

const [base, question = "Is it warm in Bern?", key = "none"] =
  process.argv.slice(2);
if (base === undefined) {
  console.error("usage: try_clients.mjs ADDRESS [QUESTION] [KEY]");
  process.exit(2);
}
const parameters = {
  type: "object",
  properties: { city: { enum: ["Bern", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};
const tools = [
  {
    type: "function",
    function: { name: "get_weather", description: "The weather.", parameters },
  },
];
const client = new OpenAI({ baseURL: base, apiKey: key });
const model = (await client.models.list()).data[0].id;
const asked = {
  model,
  messages: [{ role: "user", content: question }],
  max_tokens: 200,
  seed: 1,
};

const whole = await client.chat.completions.create(asked);
let words = "";
for await (const chunk of await client.chat.completions.create({
  ...asked,
  stream: true,
})) {
  words += chunk.choices[0]?.delta.content ?? "";
}
assert.equal(
  words,
  whole.choices[0].message.content ?? "",
  "a stream of the same words",
);
await client.chat.completions.create({ ...asked, tools });
const stream = client.chat.completions.stream({
  ...asked,
  tools,
  tool_choice: "required",
});
const called = (await stream.finalChatCompletion()).choices[0].message;
assert.equal(called.tool_calls[0].function.name, "get_weather");
const back = {
  role: "tool",
  tool_call_id: called.tool_calls[0].id,
  content: "warm",
};
await client.chat.completions.create({
  ...asked,
  tools,
  messages: [...asked.messages, called, back],
});
const schema = { name: "weather", strict: true, schema: parameters };
const formed = await client.chat.completions.create({
  ...asked,
  response_format: { type: "json_schema", json_schema: schema },
});
assert.ok(
  ["Bern", "Oslo"].includes(JSON.parse(formed.choices[0].message.content).city),
);

// As a page of an allowed origin asks: its headers must be in the preflight.
const sent = {};
await new OpenAI({
  baseURL: base,
  apiKey: key,
  fetch: (url, init) => {
    Object.assign(sent, Object.fromEntries(new Headers(init.headers)));
    return fetch(url, init);
  },
}).models.list();
console.log(
  `openai in JavaScript: ok; a page would send ${Object.keys(sent).sort().join(", ")}`,
);
