// An answer, as it is shown: the verdict and its bar first, then all there is to it.
import { figure } from "./charts.js";
import { copyButton, folded, make } from "./elements.js";

const MAIN = new Set(["num_key_value_heads", "cache_bytes_of_first_token", "cache_bytes"]);
const OF_DEVICES = new Set(["hardware", "devices"]); // tables that are the answer, where no GPU was chosen
const MARKS = { good: "✓", open: "≈", bad: "✗" };

/** What stands at the top: the verdict in words, what it is of, and the memory as a bar. */
export function headOf({ wanted, error, view }) {
  if (wanted) return [make("p", { class: "wanted" }, wanted)];
  if (error) return [make("p", { class: "verdict bad" }, make("span", { class: "mark", "aria-hidden": "true" }, "✗"), "No answer"), make("p", { class: "error" }, error)];
  const verdict = view.facts.find((fact) => fact.key === "verdict");
  return [
    make("h2", {}, view.title),
    verdict ? verdictOf(verdict) : foundOf(view),
    ...view.bars.flatMap(barOf),
  ];
}

function verdictOf({ text, note, tone }) {
  const [, word, rest] = /^([^:]+): (.*)$/s.exec(text) ?? [null, text, ""];
  return make(
    "div", { class: `verdict ${tone}` },
    tone ? make("span", { class: "mark", "aria-hidden": "true" }, MARKS[tone]) : null,
    make("p", {}, make("strong", {}, word), rest ? `: ${rest}` : "", note ? make("small", {}, note) : null),
  );
}

/** Of what has no verdict: its main figures, and how much was found wrong with it. */
function foundOf({ facts, found, findings }) {
  const main = facts.filter(({ key }) => MAIN.has(key)).map(({ title, text, note }) =>
    make("div", {}, make("dt", {}, title), make("dd", {}, text, note ? make("small", {}, ` ${note}`) : null)));
  if (!main.length) return null;
  const worst = new Set(findings.map(({ severity }) => severity));
  const tone = worst.has("error") ? "bad" : worst.has("warning") ? "open" : "";
  return make("div", {}, make("dl", { class: "tiles" }, main), make("p", { class: `found ${tone}` }, `Findings: ${found}`));
}

function barOf({ parts, limit, limit_text, left }) {
  const used = parts.reduce((sum, part) => sum + part.bytes, 0);
  const whole = Math.max(used, limit, 1);
  const pieces = parts.map((part, n) => {
    const piece = make("span", { class: `colour-${n}` });
    piece.style.width = `${(100 * part.bytes) / whole}%`;
    return piece;
  });
  const end = make("span", { class: "end" });
  end.style.left = `${(100 * limit) / whole}%`;
  const said = `${parts.map((part) => `${part.name} ${part.text}`).join(", ")}, ${left}, of ${limit_text}`;
  const items = parts.map((part, n) => make("li", {}, make("span", { class: `swatch colour-${n}` }), `${part.name} `, make("b", {}, part.text)));
  return [
    make("div", { class: "bar", role: "img", "aria-label": said }, pieces, used > limit ? end : null),
    make("ul", { class: "legend" }, items, make("li", { class: "left" }, make("span", { class: "swatch" }), make("b", {}, left), ` of ${limit_text}`)),
  ];
}

/** All the rest: facts, charts, tables, findings, notes, the command line and the document. */
export function restOf({ wanted, error, view, command, document: json }) {
  if (wanted) return [];
  if (error) return [commandOf(command)];
  const facts = view.facts.filter((fact) => fact.key !== "verdict");
  const brief = facts.filter((fact) => !fact.detail), more = facts.filter((fact) => fact.detail);
  const answering = view.tables.filter(({ key }) => OF_DEVICES.has(key));
  const others = view.tables.filter(({ key }) => !OF_DEVICES.has(key));
  const isPressing = view.findings.some(({ severity }) => severity !== "note");
  const found = findingsOf(view.findings);
  return [
    listOf(brief),
    isPressing ? found : null,
    ...answering.map((table) => make("section", {}, make("h3", {}, table.title), tableOf(table))),
    view.charts.length ? make("div", { class: "charts" }, view.charts.map(figure)) : null,
    ...view.lines.map((line) => make("pre", {}, line)),
    make(
      "div", { class: "folds" },
      ...others.map((table, n) => folded(table.title, n === 0 && !answering.length, tableOf(table))),
      ...view.maps.map((map) => folded(map.title, false, mapOf(map))),
      more.length ? folded("More figures", false, listOf(more)) : null,
      view.notes.length ? folded("Notes", false, make("ul", {}, view.notes.map((note) => make("li", {}, note)))) : null,
      documentOf(json),
    ),
    isPressing ? null : found,
    commandOf(command),
  ];
}

function listOf(facts) {
  const items = facts.flatMap(({ key, title, text, note }) => [
    make("dt", {}, title),
    make("dd", {}, key.includes("command") ? make("code", {}, text) : text, note ? make("small", {}, ` ${note}`) : null),
  ]);
  return items.length ? make("dl", {}, items) : null;
}

function findingsOf(findings) {
  if (!findings.length) return null;
  const items = findings.map(({ code, severity, where, message, hint }) =>
    make("li", {}, make("strong", { class: severity }, `${code} ${severity}`), ` ${where}: ${message}; ${hint}`));
  return make("section", { "aria-label": "Findings" }, make("h3", {}, "Findings"), make("ul", {}, items));
}

function tableOf({ title, columns, rows }) {
  const head = columns.map((column) => make("th", { scope: "col", class: column.right && "number" }, column.title));
  const cells = (row) => row.map((text, n) =>
    make("td", { class: columns[n].verdict ? toneOf(text) : columns[n].right && "number" }, text));
  return make(
    "div", { class: "scroll", tabindex: 0, role: "region", "aria-label": title },
    make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows.map((row) => make("tr", {}, cells(row))))),
  );
}

const toneOf = (verdict) => ({ fits: "good", borderline: "open" })[verdict] ?? "bad";

const mapOf = ({ title, row_title, rows }) => {
  const width = Math.max(...rows.map(([, cells]) => cells.length));
  const columns = [row_title, ...Array(width).keys()].map((name) => ({ title: String(name) }));
  return tableOf({ title, columns, rows: rows.map(([name, cells]) => [name, ...cells]) });
};

const commandOf = (command) => make(
  "section", { class: "command", "aria-label": "Command" },
  make("h3", {}, "The same on the command line"),
  make("div", { class: "line" }, make("code", {}, command), copyButton("Copy", () => command)),
  copyButton("Copy a link to this answer", () => location.href),
);

/** The JSON document, which is long: it is put in when it is opened. */
function documentOf(json) {
  const place = make("pre", { id: "document", tabindex: 0 });
  const file = URL.createObjectURL(new Blob([json], { type: "application/json" }));
  const save = make("a", { href: file, download: "headcount.json" }, "Save it as a file");
  const whole = folded("The JSON document", false, make("p", {}, save), place);
  whole.addEventListener("toggle", () => (place.textContent = json), { once: true });
  return whole;
}
