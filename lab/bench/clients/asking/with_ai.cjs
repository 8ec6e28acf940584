// Vercel's `ai` with `@ai-sdk/openai-compatible`: as checking.py, for Node.
const { appendFileSync } = require("node:fs");
const { join } = require("node:path");
const { parseArgs } = require("node:util");
const { generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");

const option = { type: "string" };
const { values: asked } = parseArgs({ options: { url: option, model: option, tokenizer: option, reports: option } });
const { version } = require("ai/package.json");
const provider = createOpenAICompatible({
  name: "outrider",
  baseURL: asked.url,
  apiKey: process.env.OUTRIDER_API_KEY || "none",
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const given = { model: provider(asked.model), temperature: 0, maxOutputTokens: 80, maxRetries: 0 };
const prompt = "Name the capital of France.";

function person(schema) {
  const properties = { name: { type: "string", maxLength: 12 }, age: { type: "integer", minimum: 0, maximum: 99 } };
  return schema({ type: "object", properties, required: ["name", "age"], additionalProperties: false });
}

function expect(holds, needed, found) {
  if (!holds) throw new Error(`needs ${needed}, found ${JSON.stringify(found)}`);
}

// A call by force, its result, and an answer: two steps or more, as agents take them.
function dialogue() {
  const city = { type: "object", properties: { city: { type: "string", maxLength: 12 } }, required: ["city"] };
  const weather = tool({
    description: "Weather of a city",
    inputSchema: jsonSchema({ ...city, additionalProperties: false }),
    execute: async (input) => `${input.city}: sunny`,
  });
  const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" });
  return { ...given, prompt, tools: { weather }, prepareStep, stopWhen: stepCountIs(3) };
}

function checkSteps(steps, text) {
  expect(steps.length === 2 && steps[0].toolResults.length === 1, "a call with its result, and an answer", steps.length);
  expect(text, "a text", text);
}

const checks = {
  generateText: async () => {
    const { text, usage } = await generateText({ ...given, prompt });
    expect(text && usage.outputTokens, "a text and usage", { text, usage });
  },
  streamText: async () => {
    const whole = await generateText({ ...given, prompt });
    const streamed = streamText({ ...given, prompt });
    let text = "";
    for await (const part of streamed.textStream) text += part;
    expect(text === whole.text, `the whole answer's text, ${whole.text}`, text);
    expect((await streamed.usage).outputTokens === whole.usage.outputTokens, "the same usage", await streamed.usage);
  },
  "generateObject, by a schema": async () => {
    const { object } = await generateObject({ ...given, prompt, schema: person(jsonSchema) });
    expect("name" in object && "age" in object, "a person", object);
  },
  "a dialogue with a tool": async () => {
    const { steps, text } = await generateText(dialogue());
    checkSteps(steps, text);
  },
  "a dialogue with a tool, streamed": async () => {
    const streamed = streamText(dialogue());
    await streamed.consumeStream();
    checkSteps(await streamed.steps, await streamed.text);
  },
};

async function main() {
  for (const [done, check] of Object.entries(checks)) {
    const row = { client: "ai", version, done, outcome: "passed", told: "" };
    try {
      await check();
    } catch (error) {
      row.outcome = "failed";
      row.told = `${error.name}: ${error.message} ${error.responseBody ?? ""}`.slice(0, 300);
    }
    appendFileSync(join(asked.reports, "rows.jsonl"), `${JSON.stringify(row)}\n`);
    console.log(`ai: ${done}: ${row.outcome} ${row.told}`);
  }
}

main();
