// What the question is put with. Each control shows a value, and tells `changed` a new one.
import { make } from "./elements.js";

const SHOWN = 60; // of a list of models: one that is longer wants another word

/** A field of text over a list that it searches: the pattern "combobox" of ARIA. */
export function combobox(field, id, models, changed) {
  const list = make("ul", { id: `${id}-list`, role: "listbox", "aria-label": "Models", hidden: true });
  const input = make("input", {
    ...{ id, role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false" },
    ...{ "aria-controls": list.id, spellcheck: "false", placeholder: "search: llama, qwen3 8b, moe…" },
  });
  let value = "", found = [], at = -1;

  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const take = (name) => {
    close();
    input.value = name;
    if (name !== value) changed((value = name));
  };
  const mark = (place) => {
    at = place;
    [...list.children].forEach((item, n) => item.setAttribute("aria-selected", String(n === at)));
    list.children[at]?.scrollIntoView({ block: "nearest" });
    if (at >= 0) input.setAttribute("aria-activedescendant", `${id}-${at}`);
    else input.removeAttribute("aria-activedescendant");
  };
  const open = (text) => {
    found = matches(models, text).slice(0, SHOWN);
    list.replaceChildren(...found.map((model, n) => option(model, `${id}-${n}`, () => take(model.name))));
    list.hidden = !found.length;
    input.setAttribute("aria-expanded", String(!list.hidden));
    mark(-1);
  };
  const keys = {
    ArrowDown: () => (list.hidden ? open("") : mark(Math.min(at + 1, found.length - 1))),
    ArrowUp: () => mark(Math.max(at - 1, -1)),
    Escape: () => (close(), (input.value = value)),
    Enter: () => take(at >= 0 ? found[at].name : input.value.trim()),
  };
  input.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  input.addEventListener("input", () => open(input.value));
  input.addEventListener("focus", () => input.select());
  input.addEventListener("click", () => open(""));
  input.addEventListener("blur", () => take(input.value.trim()));
  field.append(input, list);
  return { show: (name) => (input.value = value = name) };
}

/** The models of which a name or the type holds every word, those whose name begins so first. */
function matches(models, text) {
  const wanted = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = models.filter(({ names, type }) => {
    const known = [...names, type].join(" ").toLowerCase();
    return wanted.every((word) => known.includes(word));
  });
  const rank = ({ name }) => (wanted.length && name.toLowerCase().startsWith(wanted[0]) ? 0 : 1);
  return hits.sort((a, b) => rank(a) - rank(b));
}

function option(model, id, take) {
  const about = [model.type, model.parameters].filter(Boolean).join(" · ");
  // Not on click: the field would lose the focus first, and take what was typed.
  const down = (event) => (event.preventDefault(), take());
  return make("li", { id, role: "option", onmousedown: down }, model.name, make("small", {}, about));
}

/** A slider over the values that matter, beside a field that takes any. Where nothing is chosen both
 *  show what is reckoned with, `from`, if that is known. */
export function slider(field, id, changed) {
  const range = make("input", { type: "range", id, min: 0, step: 1 });
  const exact = make("input", { class: "exact", "aria-labelledby": `${id}-label`, "aria-description": "exactly" });
  let stops = [], text = "";
  const place = (value) => {
    const at = stops.findIndex((stop) => stop >= value);
    return at < 0 ? stops.length - 1 : at;
  };
  const show = (value, from = null) => {
    exact.value = text = value;
    exact.placeholder = from?.toLocaleString("en") ?? "";
    const number = number_of(value) ?? from;
    range.value = number === null ? stops.length - 1 : place(number);
    range.setAttribute("aria-valuetext", value || exact.placeholder || "not chosen");
  };
  range.addEventListener("input", () => {
    exact.value = text = String(stops[range.value]);
    range.setAttribute("aria-valuetext", text);
    changed(text);
  });
  const typed = () => exact.value.trim() !== text && changed((text = exact.value.trim()));
  exact.addEventListener("change", typed);
  exact.addEventListener("keydown", (event) => {
    if (event.key === "Enter") (event.preventDefault(), typed());
  });
  field.append(make("div", { class: "pair" }, range, exact));
  const setStops = (values) => ((stops = values), (range.max = stops.length - 1));
  return { show, setStops };
}

/** 8192 for "8k"; null for what is no number. */
function number_of(text) {
  const found = /^([\d.,_]+)\s*([km]?)$/i.exec(text);
  if (!found) return null;
  const scale = { "": 1, k: 1024, m: 1024 ** 2 }[found[2].toLowerCase()];
  return Number(found[1].replace(/[,_]/g, "")) * scale;
}

/** 1, 2, 4, … as far as `most`, which is the last. */
export function doubling(first, most) {
  const found = [];
  for (let value = first; value < most; value *= 2) found.push(value);
  return [...found, most];
}

/** A select whose groups are `[name, [[value, text], …]]`; those without a name stand alone. */
export function choose(select, groups, changed) {
  for (const [group, options] of groups) {
    const items = options.map(([value, text]) => make("option", { value }, text));
    select.append(...(group ? [make("optgroup", { label: group }, items)] : items));
  }
  select.addEventListener("change", () => changed(select.value));
  return { show: (value) => showChoice(select, value) };
}

/** A link may say what the list has not, such as a size of memory: then that is one more. */
function showChoice(select, value) {
  if (![...select.options].some((option) => option.value === value))
    select.append(make("option", { value }, value));
  select.value = value;
}
