"""Whose work a page carries, and under which licences."""

from headcount.model.version import __version__

from .runtime import VERSION

_TEXT = """\
This folder holds, beside the page itself:

headcount {headcount}   headcount.json, *.js, *.css, *.html
  Copyright the headcount authors. Apache License 2.0:
  https://www.apache.org/licenses/LICENSE-2.0

Pyodide {pyodide}   pyodide/
  Copyright the Pyodide contributors. Mozilla Public License 2.0:
  https://www.mozilla.org/MPL/2.0/
  Source: https://github.com/pyodide/pyodide/tree/{pyodide}

CPython 3.13   in pyodide/pyodide.asm.wasm, and pyodide/python_stdlib.zip, which is compiled here
  Copyright (c) 2001 Python Software Foundation. All rights reserved.
  PSF License Version 2: https://docs.python.org/3.13/license.html
  Source: https://github.com/python/cpython/tree/3.13

Emscripten, musl, zlib, bzip2, libffi and others   in pyodide/pyodide.asm.wasm
  MIT and similar licences, as Pyodide's source lists them (above).
"""


def notices() -> str:
    return _TEXT.format(headcount=__version__, pyodide=VERSION)
