// Elements of the page. Texts are set as texts: what a model says of itself is never read as HTML.

const SVG = "http://www.w3.org/2000/svg";
const ofSvg = new Set(["svg", "g", "path", "rect", "circle", "line", "text", "title"]);

/** An element with its attributes and what it holds; null and false are left out. */
export function make(tag, attributes = {}, ...inside) {
  const element = ofSvg.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...inside.flat().filter((part) => part !== null && part !== false));
  return element;
}

/** A list of things to see that opens, with what it is called. */
export const folded = (title, open, ...inside) =>
  make("details", { open }, make("summary", {}, title), ...inside);

/** A button that copies what `text` gives; nothing where a browser lets no page do that. */
export function copyButton(label, text) {
  if (!navigator.clipboard) return null;
  const copy = async ({ currentTarget: button }) => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  };
  return make("button", { type: "button", onclick: copy }, label);
}
