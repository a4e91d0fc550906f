"""Keep the output shown in a Markdown file equal to what its commands print.

A line `<!-- run: COMMAND -->` before a fenced block says that the block holds what COMMAND prints
on standard output. In a ```console block the first line is `$ COMMAND`. `--write FILE` fills the
blocks in, `--check FILE` fails with a diff where they differ. All commands of a file run in one
temporary folder that has links to everything beside the file, so they may write.
"""

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

_MARKER = re.compile(r"^<!-- run: (?P<command>.+?) -->$", re.MULTILINE)
_BLOCK = re.compile(
    r"^<!-- run: (?P<command>[^\n]+?) -->\n+(?P<fence>```(?:text|console))\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def output_of(command: str, folder: Path) -> str:
    """What `command` prints on standard output, run by the shell in `folder` without colours.

    Exits with what it printed on standard error when the command fails.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    fixed = {"COLUMNS": "80", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, **fixed, "PATH": path},
        capture_output=True,
        encoding="utf-8",
    )
    if done.returncode != 0:
        sys.exit(f"`{command}` failed with exit code {done.returncode}:\n{done.stderr.strip()}")
    return "".join(line.rstrip() + "\n" for line in done.stdout.splitlines())


def regenerate(text: str, folder: Path) -> tuple[str, int]:
    """`text` with every marked block filled in from its command, and the number of blocks."""

    def fill(match: re.Match[str]) -> str:
        command, fence = match["command"], match["fence"]
        prompt = f"$ {command}\n" if fence.endswith("console") else ""
        body = prompt + output_of(command, folder)
        return f"<!-- run: {command} -->\n{fence}\n{body}```"

    text, count = _BLOCK.subn(fill, text)
    if count != len(_MARKER.findall(text)):
        sys.exit("a `<!-- run: -->` line without a ```text or ```console block right after it")
    if count == 0:
        sys.exit("no `<!-- run: COMMAND -->` line: there is nothing to check")
    return text, count


def main() -> int:
    """Write or check one file; 1 when a check finds a difference."""
    parser = argparse.ArgumentParser(description="Fill in or check the command output in a file.")
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true", help="put the real output into the file")
    mode.add_argument("--check", action="store_true", help="fail where the file differs from it")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()

    old = options.file.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for entry in options.file.resolve().parent.iterdir():
            (folder / entry.name).symlink_to(entry)
        new, count = regenerate(old, folder)
    if options.write:
        options.file.write_text(new, encoding="utf-8")
        return 0
    lines = (old.splitlines(keepends=True), new.splitlines(keepends=True))
    sys.stdout.writelines(difflib.unified_diff(*lines, "in the file", "what the commands print"))
    print(f"{options.file}: {'up to date' if old == new else 'differs'}, blocks checked: {count}")
    return int(old != new)


if __name__ == "__main__":
    sys.exit(main())
