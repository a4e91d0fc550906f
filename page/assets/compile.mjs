// node compile.mjs PACKAGE ARCHIVE: writes the standard library of the pyodide in the folder PACKAGE
// with its modules compiled. The same input gives the same bytes.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [folder, archive] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(join(folder, "pyodide.mjs")).href);
const pyodide = await loadPyodide({ indexURL: folder });
pyodide.FS.writeFile("/source.zip", new Uint8Array(readFileSync(join(folder, "python_stdlib.zip"))));
pyodide.runPython(`
import _imp
from importlib import _bootstrap_external as files
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

def compiled(name, data):
    code = compile(data, name, "exec", dont_inherit=True)
    digest = _imp.source_hash(files._RAW_MAGIC_NUMBER, data)
    return bytes(files._code_to_hash_pyc(code, digest, False))  # the source is not looked for

with ZipFile("/source.zip") as source, ZipFile("/compiled.zip", "w", ZIP_DEFLATED) as target:
    for name in sorted(n for n in source.namelist() if not n.endswith("/")):
        data = source.read(name)
        if name.endswith(".py"):
            name, data = f"{name}c", compiled(name, data)
        target.writestr(ZipInfo(name), data, ZIP_DEFLATED)
`);
writeFileSync(archive, pyodide.FS.readFile("/compiled.zip"));
