// The client of the TypeScript SDK drives the server: `node typescript_client.mjs talk|pages CWD COMMAND...`.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [flow, cwd, command, ...args] = process.argv.slice(2);

/** Start the server, run `steps` with a connected client, end its input and demand exit code 0. */
async function withServer(steps, { kill = false } = {}) {
  const server = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  const exited = once(server, "exit");
  const stream = acp.ndJsonStream(Writable.toWeb(server.stdin), Readable.toWeb(server.stdout));
  const updates = [];
  const app = acp
    .client()
    .onRequest("session/request_permission", ({ params }) => {
      const option = params.options.find(({ kind }) => kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: option.optionId } };
    })
    .onNotification("session/update", ({ params }) => {
      updates.push(params.update);
    });
  await app.connectWith(stream, async (agent) => {
    const opened = await agent.request("initialize", {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
    });
    assert.equal(opened.protocolVersion, 1);
    await steps(agent, updates, opened.agentCapabilities);
    if (kill) server.kill("SIGKILL");
    else server.stdin.end();
  });
  const [code] = await exited;
  if (!kill) assert.equal(code, 0);
}

const text = (value) => [{ type: "text", text: value }];
const opening = { cwd, mcpServers: [] };
const variants = (updates) => updates.map(({ sessionUpdate }) => sessionUpdate);
const said = (updates) =>
  updates
    .filter(({ sessionUpdate }) => sessionUpdate === "agent_message_chunk")
    .map(({ content }) => content.text)
    .join("");

async function refusal(promise) {
  const error = await promise.then(() => assert.fail("it was not refused"), (reason) => reason);
  return error.code;
}

/** Wait until `updates` fits; they come in notifications, so a turn of the event loop each. */
async function until(fits) {
  while (!fits()) await new Promise((resolve) => setImmediate(resolve));
}

/** New, prompt with permission, plan and cards, cancel; kill; then list, load and resume. */
async function talk() {
  let sessionId, live;
  await withServer(
    async (agent, updates) => {
      ({ sessionId } = await agent.request("session/new", opening));
      const first = await agent.request("session/prompt", { sessionId, prompt: text("hello") });
      assert.equal(first.stopReason, "end_turn");
      for (const variant of ["plan", "tool_call", "tool_call_update", "agent_thought_chunk"])
        assert.ok(variants(updates).includes(variant), variant);
      live = said(updates);
      const seen = updates.length;
      const second = agent.request("session/prompt", { sessionId, prompt: text("more") });
      await until(() => variants(updates.slice(seen)).includes("agent_message_chunk"));
      await agent.notify("session/cancel", { sessionId });
      assert.equal((await second).stopReason, "cancelled");
      live = said(updates);
    },
    { kill: true },
  );
  await withServer(async (agent, updates) => {
    const { sessions } = await agent.request("session/list", { cwd });
    assert.deepEqual(sessions.map((row) => row.sessionId), [sessionId]);
    await agent.request("session/load", { sessionId, ...opening });
    assert.equal(said(updates), live);
    assert.equal(variants(updates).filter((name) => name === "user_message_chunk").length, 2);
    const final = updates.filter(({ sessionUpdate }) => sessionUpdate === "tool_call");
    assert.ok(final.every(({ status }) => status === "completed" || status === "failed"));
    const again = await agent.request("session/prompt", { sessionId, prompt: text("again") });
    assert.equal(again.stopReason, "end_turn");
  });
  await withServer(async (agent, updates) => {
    const resumed = await agent.request("session/resume", { sessionId, ...opening });
    assert.ok(!variants(updates).includes("user_message_chunk"));
    const modeId = resumed.modes.availableModes.at(-1).id;
    await agent.request("session/set_mode", { sessionId, modeId });
    const { configOptions } = await agent.request("session/set_config_option", {
      sessionId,
      configId: "mode",
      value: resumed.modes.currentModeId,
    });
    assert.equal(configOptions[0].id, "mode");
  });
}

/** Three pages, close, delete, and errors. */
async function pages() {
  await withServer(async (agent) => {
    const made = [];
    for (let number = 0; number < 101; number++) {
      const { sessionId } = await agent.request("session/new", opening);
      await agent.request("session/prompt", { sessionId, prompt: text("hello") });
      made.unshift(sessionId);
    }
    const listed = [];
    let cursor;
    do {
      const page = await agent.request("session/list", { cwd, ...(cursor && { cursor }) });
      listed.push(page.sessions.map((row) => row.sessionId));
      cursor = page.nextCursor;
    } while (cursor);
    assert.deepEqual(listed.map((page) => page.length), [50, 50, 1]);
    assert.deepEqual(listed.flat(), made);
    assert.equal(await refusal(agent.request("session/list", { cursor: "bad" })), -32602);
    const [sessionId, other] = made;
    await agent.request("session/close", { sessionId });
    const prompt = { sessionId, prompt: text("hello") };
    assert.equal(await refusal(agent.request("session/prompt", prompt)), -32002);
    for (const id of [sessionId, other, "unknown"])
      await agent.request("session/delete", { sessionId: id });
    const load = agent.request("session/load", { sessionId, ...opening });
    assert.equal(await refusal(load), -32002);
    const left = await agent.request("session/list", { cwd });
    assert.equal(left.sessions[0].sessionId, made[2]);
    assert.equal(await refusal(agent.request("session/nope", {})), -32601);
  });
}

await { talk, pages }[flow]();
console.log(`typescript sdk: ${flow} ok`);
