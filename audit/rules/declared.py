"""H3xx, H5xx, H6xx: what a config asks for beside its geometry: code, tokens, element types."""

from collections.abc import Iterator

from .alike import by, such
from .config_facts import ConfigFacts
from .rule import Sighting, rule

# Names that transformers itself gives to implementations.
_KNOWN = frozenset(
    {"eager", "sdpa", "flex_attention", "torch", "triton", "grouped_mm", "batched_mm", "deepgemm"}
    | {f"flash_attention_{n}" for n in (2, 3, 4)}
    | {f"paged|{name}" for name in ("eager", "sdpa", "flash_attention_2", "flash_attention_3")}
)


_IN_TRANSFORMERS = (
    "transformers has a class of its own for this model_type: load it without trust_remote_code"
)
_OWN_CODE = (
    "headcount convert wrote that file, and it is unchanged: import headcount.convert, or load with"
    " trust_remote_code=True"
)


@rule(
    "H301",
    "remote-code",
    "warning",
    "it runs with trust_remote_code=True only: read it first, and pin the revision",
)
def remote_code(facts: ConfigFacts) -> Iterator[Sighting]:
    """The key auto_map names Python code that comes with the model."""
    if facts.remote_code:
        count, first = len(facts.remote_code), facts.remote_code[0]
        known = facts.in_transformers or facts.own_code
        yield Sighting(
            first,
            f"names code of the model's own ({count} class{'es' if count > 1 else ''})",
            severity="note" if known else "warning",
            hint=_OWN_CODE if facts.own_code else _IN_TRANSFORMERS if known else None,
        )


@rule(
    "H303",
    "named-implementation",
    "error",
    "remove the key: some releases of transformers run that code without being asked"
    " (CVE-2026-4372)",
)
def named_implementation(facts: ConfigFacts) -> Iterator[Sighting]:
    """The config names an implementation that transformers would fetch from the Hub."""
    for alike in by(facts.implementations, lambda item: item[1]):
        (path, name), more = alike[0], such([path for path, _ in alike], "key")
        if "/" in name:
            yield Sighting(path, f"{name!r} names a repository, whose code would be run{more}")
        elif name not in _KNOWN:
            yield Sighting(
                path,
                f"{name!r} is no implementation of transformers{more}",
                severity="warning",
                hint="loading may fail, or use what the model's own code registers; remove the key",
            )


@rule(
    "H216",
    "byte-order-mark",
    "error",
    "save it as UTF-8 without the mark: transformers does not load such a model",
)
def byte_order_mark(facts: ConfigFacts) -> Iterator[Sighting]:
    """The config or the index begins with a byte-order mark, which JSON does not allow."""
    for name in facts.marked:
        yield Sighting(name, "begins with a byte-order mark")


@rule("H305", "nested-trust", "warning", "only the caller may say this; remove the key")
def nested_trust(facts: ConfigFacts) -> Iterator[Sighting]:
    """The config itself says trust_remote_code: true."""
    if facts.trusts:
        said = "true: the file grants itself the right to run code"
        yield Sighting(facts.trusts[0], f"{said}{such(facts.trusts, 'key')}")


@rule(
    "H504",
    "token-outside-vocabulary",
    "warning",
    "looking that token up fails, and generation does not stop at it; correct the id",
)
def token_outside(facts: ConfigFacts) -> Iterator[Sighting]:
    """A special token's id is not in the vocabulary."""
    size = facts.tokens
    outside = [(k, n) for k, n in dict.fromkeys(facts.token_ids) if size is not None and n >= size]
    for alike in by(outside, lambda item: item[0]):
        (key, number), more = alike[0], such([key for key, _ in alike], "id")
        yield Sighting(key, f"{number:,}, vocab_size is {facts.spec.vocab_size:,}{more}")


@rule(
    "H606",
    "no-dtype",
    "note",
    "--kv-dtype gives another; transformers loads such weights as they are stored",
)
def no_dtype(facts: ConfigFacts) -> Iterator[Sighting]:
    """The config names no element type."""
    if facts.spec.dtype is None:
        yield Sighting("dtype", "not given: the cache is sized for 16 bit")


@rule("H607", "unknown-quantisation", "note", "without headers the stored bytes cannot be computed")
def unknown_method(facts: ConfigFacts) -> Iterator[Sighting]:
    """The weights are quantised in a way that is not known here."""
    found = facts.quantisation
    if found is not None and found.unknown is not None:
        yield Sighting(found.key, found.unknown)


RULES = (
    remote_code,
    named_implementation,
    nested_trust,
    token_outside,
    no_dtype,
    unknown_method,
)
# What the JSON alone does not show.
OF_BYTES = (byte_order_mark,)
