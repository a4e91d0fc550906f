"""How models and files of the Hub are spelled."""

import re


def split_target(target: str) -> tuple[str, str, str | None]:
    """`org/name[@revision]` or `org/name/FILE.gguf[@revision]`: name, revision, file. The revision
    may also stand behind the name."""
    left, _, right = target.partition("@")
    if right.endswith(".gguf"):
        right, _, inside = right.partition("/")
        left = f"{left}/{inside}"
    parts = left.split("/", 2)
    return "/".join(parts[:2]), right, parts[2] if len(parts) > 2 else None


def is_file_of_hub(target: str) -> bool:
    """Whether `target` is spelled like a GGUF file of a repository of the Hub."""
    name, _, file = split_target(target)
    return (
        file is not None
        and file.endswith(".gguf")
        and re.fullmatch(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", name, re.ASCII) is not None
        and re.fullmatch(r"[^\x00-\x1f\\:]+", file) is not None
        and not {"", ".", ".."} & set(file.split("/"))
    )
