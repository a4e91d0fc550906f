// Runs Python, apart from the page so that this stays responsive: a request comes in, and the answer
// of headcount/page/answers.py goes out. Files are read where they lie, by the bytes that are asked for.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const HERE = new URL(".", import.meta.url).href;
const DROPPED = "/files/dropped";
let mounted = false;

async function start() {
  const texts = fetch(`${HERE}headcount.json`).then((response) => response.json());
  const pyodide = await loadPyodide({ indexURL: `${HERE}pyodide/` });
  const { FS } = pyodide, made = new Set();
  for (const [name, text] of Object.entries(await texts)) {
    const path = `/package/${name}`, folder = path.slice(0, path.lastIndexOf("/"));
    if (!made.has(folder)) FS.mkdirTree(folder), made.add(folder);
    FS.writeFile(path, text);
  }
  FS.mkdirTree(DROPPED);
  FS.chdir(DROPPED);
  pyodide.runPython("import sys; sys.path.insert(0, '/package')");
  return { FS, answer: pyodide.pyimport("headcount.page.answers").answer };
}

const started = start();
started.catch((error) => postMessage({ failed: String(error) }));

/** One file is named as it is, several by their folder. */
function mount(FS, files) {
  if (mounted) FS.unmount(DROPPED);
  FS.mount(FS.filesystems.WORKERFS, { files }, DROPPED);
  mounted = true;
  FS.chdir(files.length === 1 ? DROPPED : "/files");
}

// One after the other: files that are dropped are there for the question that follows.
let last = started;
onmessage = ({ data }) => {
  last = last.then(async () => {
    const { FS, answer } = await started;
    if (data.files) return mount(FS, data.files);
    postMessage({ id: data.id, answer: JSON.parse(answer(JSON.stringify(data.request))) });
  }).catch((error) => postMessage({ id: data.id, failed: String(error) }));
};
