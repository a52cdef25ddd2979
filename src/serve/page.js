"use strict";
// The playground and the live view. Text from the server enters the page as text; only the table of runs, which the
// server has escaped, enters as HTML.
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const FULL_COLOUR_BITS = 12, MEAN_OVER = 32;

let model = null;      // what /v1/models says
let contexts = [];     // the slider's places; 0: all
let running = null;    // AbortController of the completion at hand
let points = [];       // bits of every token that was made
let promptTokens = 0;

function headers() {
  const key = byId("key").value;
  return key ? {"Content-Type": "application/json", "Authorization": "Bearer " + key} : {"Content-Type": "application/json"};
}

async function ask(path, body) {
  const options = body === undefined ? {headers: headers()} : {method: "POST", headers: headers(), body: JSON.stringify(body)};
  const reply = await fetch(path, options);
  if (reply.status === 401) byId("key-form").hidden = false;
  return reply;
}

async function problem(reply) {
  try {
    return (await reply.json()).error.message;
  } catch (e) {
    return "the server answered " + reply.status;
  }
}

function times(tokens) {
  const share = tokens / model.longshot.train_length;
  return share <= 1 ? "within the training length " + model.longshot.train_length
                    : share.toFixed(1) + " times the training length " + model.longshot.train_length;
}

// The model

async function findModel() {
  const health = await fetch("health").catch(() => null);
  const state = health ? (await health.json().catch(() => ({}))).status : "not there";
  if (state === "no model") {
    byId("facts").textContent = "no model is served; runs are below";
    return;
  }
  const reply = state === "ok" ? await ask("v1/models") : null;
  const list = reply && reply.ok ? (await reply.json()).data : [];
  if (list.length === 0) {
    byId("facts").textContent = reply && !reply.ok ? await problem(reply) : "the server is " + state;
    setTimeout(findModel, 1000);
    return;
  }
  model = list[0];
  const about = model.longshot;
  byId("facts").textContent = `${model.id}: ${about.position}, trained on ${about.train_length} tokens at a time, ` +
      `vocabulary of ${about.vocabulary}; up to ${about.max_length} tokens here`;
  for (let n = 4; n < about.max_length; n *= 2) contexts.push(n);
  contexts.push(0);
  byId("context").max = contexts.length - 1;
  byId("context").value = contexts.length - 1;
  showContext();
  byId("playground").hidden = false;
  countPrompt();
}

function chosenContext() { return contexts[Number(byId("context").value)]; }

function showContext() {
  const n = chosenContext();
  byId("context-text").textContent = n === 0 ? "all before it" : `${n}, ${times(n)}`;
}

async function countPrompt() {
  const reply = await ask("tokenize", {content: byId("prompt").value});
  if (!reply.ok) return;
  const count = (await reply.json()).tokens.length;
  byId("prompt-facts").textContent = `${count} tokens, ${times(count + 1)}`;
  return count;
}

// A completion

function addToken(choice) {
  const logprobs = choice.logprobs;
  const count = logprobs ? logprobs.tokens.length : 0;
  const bits = count ? logprobs.token_logprobs.map((p) => -p / Math.LN2) : [];
  for (const b of bits) {
    points.push(b);
    if (promptTokens + 1 + points.length === model.longshot.train_length + 1) {
      const wall = document.createElement("span");
      wall.className = "wall";
      wall.textContent = "here the text passes the training length, " + model.longshot.train_length;
      byId("text").append(wall);
    }
  }
  if (choice.text === "" || count === 0) {
    byId("text").append(choice.text);
    return;
  }
  const span = document.createElement("span");
  span.className = "token";
  span.textContent = choice.text;
  span.tabIndex = 0;
  const mean = bits.reduce((a, b) => a + b, 0) / count;
  span.style.setProperty("--heat", (85 * Math.min(1, mean / FULL_COLOUR_BITS)).toFixed(1));
  const place = promptTokens + 1 + points.length;
  const show = () => showAlternatives(span, logprobs, bits, place);
  span.addEventListener("mouseenter", show);
  span.addEventListener("focus", show);
  byId("text").append(span);
}

function showAlternatives(span, logprobs, bits, place) {
  for (const other of document.querySelectorAll(".chosen")) other.classList.remove("chosen");
  span.classList.add("chosen");
  const panel = byId("alternatives");
  panel.replaceChildren();
  const note = document.createElement("p");
  note.className = "note";
  note.textContent = bits.map((b, i) => `${JSON.stringify(logprobs.tokens[i])}: ${b.toFixed(2)} bits`).join(", ") +
      `; token ${place}, ${times(place)}`;
  panel.append(note);
  const last = logprobs.tokens.length - 1;
  const table = document.createElement("table");
  const likeliest = Object.entries(logprobs.top_logprobs[last]).sort((a, b) => b[1] - a[1]);
  for (const [token, logp] of likeliest) {
    const row = table.insertRow();
    if (token === logprobs.tokens[last]) row.className = "made";
    row.insertCell().textContent = JSON.stringify(token);
    const meter = document.createElement("meter");
    meter.value = Math.exp(logp);
    row.insertCell().append(meter);
    row.insertCell().textContent = (100 * Math.exp(logp)).toFixed(1) + "%";
  }
  panel.append(table);
}

function element(name, attributes, text) {
  const e = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
  if (text !== undefined) e.textContent = text;
  return e;
}

function drawSurprisal() {
  const figure = byId("surprisal");
  figure.hidden = points.length < 2;
  const means = points.map((_, i) => {
    const part = points.slice(Math.max(0, i - MEAN_OVER + 1), i + 1);
    return part.reduce((a, b) => a + b, 0) / part.length;
  });
  const first = promptTokens + 1, last = first + points.length;
  const most = means.reduce((a, b) => Math.max(a, b), 4);
  const x = (t) => 34 + 476 * (t - first) / Math.max(1, last - first), y = (b) => 170 - 156 * b / most;
  const svg = figure.querySelector("svg");
  svg.replaceChildren();
  for (const tick of [0, most / 2, most]) {
    svg.append(element("line", {class: "grid", x1: 34, x2: 510, y1: y(tick), y2: y(tick)}));
    svg.append(element("text", {class: "end", x: 30, y: y(tick) + 4}, tick.toFixed(1)));
  }
  for (const t of [first, last]) svg.append(element("text", {class: t === first ? "start" : "end", x: x(t), y: 188}, t));
  const length = model.longshot.train_length;
  if (length > first && length < last) {
    svg.append(element("line", {class: "mark", x1: x(length), x2: x(length), y1: 10, y2: 170}));
  }
  const path = means.map((m, i) => (i ? "L" : "M") + x(first + i).toFixed(1) + " " + y(m).toFixed(1)).join("");
  const group = element("g", {class: "c0"});
  group.append(element("path", {class: "line", d: path}));
  svg.append(group);
}

// Calls use(object) for every event of a stream.
async function readEvents(reply, use) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    held += value;
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      const data = held.slice(0, end).replace(/^data: /, "");
      if (data !== "[DONE]") use(JSON.parse(data));
    }
  }
}

function request() {
  const number = (id) => Number(byId(id).value);
  const body = {prompt: byId("prompt").value, model: model.id, stream: true, logprobs: 8};
  for (const id of ["max_tokens", "temperature", "top_k", "top_p", "min_p", "seed"]) body[id] = number(id);
  if (byId("stop").value !== "") body.stop = [byId("stop").value];
  if (chosenContext() > 0) body.context = chosenContext();
  return body;
}

async function complete() {
  if (running) return;
  running = new AbortController();
  byId("start").disabled = true, byId("cancel").disabled = false;
  points = [];
  byId("surprisal").hidden = true;
  const prompt = document.createElement("span");
  prompt.className = "prompt";
  prompt.textContent = byId("prompt").value;
  byId("text").replaceChildren(prompt);
  byId("status").textContent = "";
  try {
    promptTokens = await countPrompt() || 0;
    const start = performance.now();
    const reply = await fetch("v1/completions",
                              {method: "POST", headers: headers(), body: JSON.stringify(request()), signal: running.signal});
    if (!reply.ok) throw new Error(await problem(reply));
    await readEvents(reply, (event) => {
      if (event.error) throw new Error(event.error.message);
      const choice = event.choices[0];
      addToken(choice);
      const rate = points.length / (performance.now() - start) * 1000;
      byId("status").textContent = `${points.length} tokens, ${rate.toFixed(0)} tokens/s` +
          (choice.finish_reason ? `; ended by ${choice.finish_reason}; ${choice.longshot.length}` : "");
    });
    drawSurprisal();
  } catch (e) {
    byId("status").textContent = e.name === "AbortError" ? `stopped after ${points.length} tokens` : e.message;
    if (points.length > 1) drawSurprisal();
  }
  running = null;
  byId("start").disabled = false, byId("cancel").disabled = true;
}

// Runs

let version = -1;

async function showRuns() {
  if (!document.hidden) {
    const reply = await ask("runs?since=" + version).catch(() => null);
    if (reply && reply.status === 200) {
      version = Number(reply.headers.get("X-Version"));
      const place = byId("runs"), scrolled = place.querySelector(".scroll");
      const left = scrolled ? scrolled.scrollLeft : 0;
      place.innerHTML = await reply.text();
      if (left) place.querySelector(".scroll").scrollLeft = left;
    } else if (reply && reply.status === 404) {
      byId("live").hidden = true;
      return;
    }
  }
  setTimeout(showRuns, 2000);
}

byId("form").addEventListener("submit", (event) => { event.preventDefault(); complete(); });
byId("key-form").addEventListener("submit", (event) => event.preventDefault());  // it is taken with the next question
byId("cancel").addEventListener("click", () => running && running.abort());
byId("context").addEventListener("input", showContext);
byId("prompt").addEventListener("change", () => model && countPrompt());
findModel();
showRuns();
