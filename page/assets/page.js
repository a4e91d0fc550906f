// The page: its state is the fragment of its address, so that a link leads to the same answer.
import { headOf, restOf } from "./answer.js";
import { choose, combobox, doubling, slider } from "./controls.js";
import { make } from "./elements.js";

// What is asked where the address says nothing.
const FIRST = { ask: "plan", model: "llama-3.1-8b", device: "h100", context: "8192" };
const LONGEST = 1048576; // tokens, until the model's own maximum is known
const MODEL_FILE = /\.(json|safetensors|gguf|bin|pt|pth)$/i;
const WAIT = 60; // ms that a slider rests before it is asked about
const STALE = 400; // ms that the last answer to the same kind of question stands while the next is reckoned

// question -> command, the fields that name models or logs, and field -> option.
const SIZES = { context: "context", users: "batch_size", kv_dtype: "kv_dtype" };
const PLANNED = { device: "device", engine: "engine", dtype: "dtype", utilisation: "utilisation" };
const ASKS = {
  plan: { command: "plan", names: ["model"], options: { ...PLANNED, ...SIZES, tp: "tp" } },
  find: { command: "plan", names: ["model"], options: { ...PLANNED, ...SIZES, users: "target_users" } },
  audit: { command: "audit", names: ["model"], options: SIZES },
  diff: { command: "diff", names: ["model", "against"], options: SIZES },
  log: { command: "reconcile", names: ["log"], options: { of: "model", on: "device" } },
};
const NUMBERS = new Set(["users", "tp", "utilisation"]);
const STANDING = { users: 1, tp: 1 }; // where nothing is chosen
const FIELDS = ["ask", "model", "against", "log", "of", "on", "device", "engine", "context", "users", "tp", "dtype", "kv_dtype", "utilisation"];

const by = (id) => document.getElementById(id);
const answerPlace = by("answer"), morePlace = by("more");
let state = {}, controls = {}, serving = "", laidBy = ""; // the GPU that a search over all was asked in place of

// ---- the state, and the address ----

function read() {
  const said = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const known = FIELDS.filter((name) => said[name]).map((name) => [name, said[name]]);
  state = known.length ? { ask: "plan", ...Object.fromEntries(known) } : { ...FIRST };
  if (!(state.ask in ASKS)) state.ask = "plan";
  complete();
}

/** A search of GPUs is one for a number of requests. */
function complete() {
  if (state.ask === "find") state.users ??= String(STANDING.users);
}

function write() {
  const said = FIELDS.filter((name) => state[name]).map((name) => [name, state[name]]);
  history.replaceState(null, "", `#${new URLSearchParams(said)}`);
}

function change(name, value) {
  if (value) state[name] = value;
  else delete state[name];
  complete();
  write();
  show();
  ask();
}

/** Another question of the same model. Which GPUs it fits is asked of all: one that was chosen is laid
 *  by, and chosen again for the question that it is of. */
function turnTo(question) {
  if (question === "find") [laidBy, state.device] = [state.device ?? "", ""];
  else if (state.ask === "find") state.device ||= laidBy;
  change("ask", question);
}

// ---- the controls ----

function show() {
  for (const radio of document.getElementsByName("ask")) radio.checked = radio.value === state.ask;
  for (const part of document.querySelectorAll("[data-for]"))
    part.hidden = !part.dataset.for.split(" ").includes(state.ask);
  for (const [name, control] of Object.entries(controls)) control.show(state[name] ?? "", STANDING[name]);
  by("engine").options[0].text = state.ask === "find" ? `${serving}, as none is chosen` : "none: memory alone";
  by("log").value = state.log ?? "";
}

function build({ models, devices, engines, dtypes, cache_dtypes, version, ...more }) {
  by("version").textContent = version;
  serving = more.serving;
  const changed = (name) => (value) => change(name, value);
  for (const name of ["model", "against", "of"])
    controls[name] = combobox(by(`${name}-field`), name, models, changed(name));
  controls.device = choose(by("device"), [["", [["", "any: show all"]]], ...byVendor(devices)], changed("device"));
  controls.on = choose(by("on"), [["", [["", "not known"]]], ...byVendor(devices)], changed("on"));
  controls.engine = choose(by("engine"), [["", [["", ""], ...engines.map(plain)]]], changed("engine"));
  controls.dtype = choose(by("dtype"), [["", [["", "as stored"], ...dtypes.map(plain)]]], changed("dtype"));
  controls.kv_dtype = choose(by("kv_dtype"), [["", [["", "as the model, or the engine, has it"], ...cache_dtypes.map(plain)]]], changed("kv_dtype"));
  controls.context = slider(by("context-field"), "context", changed("context"));
  controls.users = slider(by("users-field"), "users", changed("users"));
  controls.tp = slider(by("tp-field"), "tp", changed("tp"));
  controls.utilisation = slider(by("utilisation-field"), "utilisation", changed("utilisation"));
  controls.context.setStops(doubling(1024, LONGEST));
  controls.users.setStops(doubling(1, 4096));
  controls.tp.setStops(doubling(1, 64));
  controls.utilisation.setStops([0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 0.98]);
  for (const radio of document.getElementsByName("ask"))
    radio.addEventListener("change", () => turnTo(radio.value));
  by("question").addEventListener("submit", (event) => event.preventDefault());
}

const plain = (name) => [name, name];

function byVendor(devices) {
  const vendors = new Map();
  for (const { key, name, vendor } of devices)
    vendors.set(vendor, [...(vendors.get(vendor) ?? []), [key, name.replace(`${vendor} `, "")]]);
  return [...vendors];
}

/** What an answer tells of its model: how long it may be, and what was reckoned with. */
function settle({ document: json }) {
  const { model, request } = JSON.parse(json);
  const most = model?.max_position_embeddings ?? LONGEST;
  controls.context.setStops(doubling(Math.min(1024, most), most));
  controls.context.show(state.context ?? "", request?.context ?? null);
  controls.utilisation.show(state.utilisation ?? "", request?.utilisation ?? null);
}

// ---- files ----

function take(files) {
  const found = [...files];
  if (!found.length) return answered({ answer: { error: "No file lies in what was dropped: drop a config.json, or a folder that holds one", command: "headcount --help" } });
  worker.postMessage({ files: found });
  const isModel = found.some(({ name }) => MODEL_FILE.test(name));
  const name = found.length === 1 ? found[0].name : "dropped";
  if (isModel && state.ask === "log") state.ask = "plan";
  if (!isModel) state.ask = "log";
  change(isModel ? "model" : "log", name);
}

function takeFiles() {
  by("files").addEventListener("change", ({ target }) => (take(target.files), (target.value = "")));
  addEventListener("dragover", (event) => (event.preventDefault(), document.body.classList.add("dropping")));
  addEventListener("dragleave", (event) => event.relatedTarget || document.body.classList.remove("dropping"));
  addEventListener("drop", (event) => {
    event.preventDefault();
    document.body.classList.remove("dropping");
    filesOf(event.dataTransfer).then(take, (error) => answered({ failed: `${error.name}: ${error.message}` }));
  });
}

/** What was dropped; of folders the files that lie in them, as the command line looks into no folder of a model's. */
async function filesOf({ files, items }) {
  const entries = [...items].map((item) => item.webkitGetAsEntry?.()); // now: they are gone when this waits
  if (!entries.some((entry) => entry?.isDirectory)) return files;
  const found = await Promise.all(entries.map((entry) => (entry?.isDirectory ? entriesOf(entry) : [entry])));
  const within = found.flat().filter((entry) => entry?.isFile && !entry.name.startsWith("."));
  return Promise.all(within.map((entry) => new Promise((done, failed) => entry.file(done, failed))));
}

/** A reader gives some at a time, and none at its end. */
async function entriesOf(folder) {
  const reader = folder.createReader(), found = [];
  for (;;) {
    const some = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!some.length) return found;
    found.push(...some);
  }
}

// ---- questions and answers ----

// Of a blob, a worker is under the page's own policy: it can reach this server and nothing else.
function startWorker() {
  const code = `import ${JSON.stringify(new URL("worker.js", location.href).href)};`;
  const made = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })), { type: "module" });
  made.onmessage = ({ data }) => answered(data);
  made.onerror = (event) => answered({ failed: event.message || "the worker did not start" });
  return made;
}

let worker, timer = 0, clearing = 0, asked = 0, inWork = null, waiting = null, answeredAsk = "";

/** The newest question only: what is asked while another is in work waits, and takes the place of
 *  what waited. */
function ask() {
  answerPlace.setAttribute("aria-busy", "true");
  clearTimeout(clearing);
  clearing = setTimeout(clear, state.ask === answeredAsk ? STALE : 0);
  clearTimeout(timer);
  timer = setTimeout(() => {
    waiting = { id: ++asked, request: request(), ask: state.ask, of: location.hash };
    send();
  }, WAIT);
}

/** An answer that is not the question's goes. What is said while Python starts stays. */
function clear() {
  if (!answeredAsk) return;
  answerPlace.replaceChildren(make("p", { class: "busy" }, state.ask === "find" ? "Searching all GPUs, which takes some seconds…" : "Reckoning…"));
  morePlace.replaceChildren();
}

function send() {
  if (inWork || !waiting) return;
  [inWork, waiting] = [waiting, null];
  worker.postMessage({ id: inWork.id, request: inWork.request });
}

function request() {
  const { command, names, options } = ASKS[state.ask];
  const given = Object.entries(options).filter(([field]) => state[field]);
  return {
    ask: command,
    names: names.map((field) => state[field] ?? ""),
    options: Object.fromEntries(given.map(([field, option]) => [option, valueOf(field)])),
  };
}

/** Numbers as numbers; what is none is told of by the command, as a text. */
function valueOf(field) {
  const number = Number(state[field]);
  return NUMBERS.has(field) && !Number.isNaN(number) ? number : state[field];
}

function answered({ id, answer, failed }) {
  if (failed) answer = { error: `The page failed: ${failed}`, command: "headcount --help" };
  const question = inWork;
  if (id && id === question?.id) inWork = null;
  if (waiting) return send();
  clearTimeout(clearing);
  answeredAsk = question?.ask ?? state.ask;
  if (answer.document) settle(answer);
  document.title = answer.view ? `${answer.view.title} · headcount` : "headcount";
  answerPlace.replaceChildren(...headOf(answer).filter(Boolean));
  morePlace.replaceChildren(...restOf(answer).filter(Boolean));
  answerPlace.dataset.of = question?.of ?? "";
  answerPlace.setAttribute("aria-busy", "false");
}

worker = startWorker();
read();
build(await (await fetch("choices.json")).json());
takeFiles();
addEventListener("hashchange", () => (read(), show(), ask()));
show();
ask();
