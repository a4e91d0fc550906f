"""H3xx, H5xx, H6xx: what a config asks for beside its geometry: code, tokens, element types."""

from collections.abc import Iterator

from .config_facts import ConfigFacts
from .rule import Rule, Seen

# Names that transformers itself gives to implementations.
_KNOWN = frozenset(
    {"eager", "sdpa", "flex_attention", "torch", "triton", "grouped_mm", "batched_mm", "deepgemm"}
    | {f"flash_attention_{n}" for n in (2, 3, 4)}
    | {f"paged|{name}" for name in ("eager", "sdpa", "flash_attention_2", "flash_attention_3")}
)
# Methods whose size per weight is known (plan/stored.py).
_METHODS = frozenset(
    {"gptq", "awq", "fp8", "fbgemm_fp8", "mxfp4", "bitsandbytes", "compressed-tensors", "modelopt"}
)


_IN_TRANSFORMERS = (
    "transformers has a class of its own for this model_type: load it without trust_remote_code"
)
_OWN_CODE = (
    "headcount convert wrote that file, and it is unchanged: import headcount.convert, or load with"
    " trust_remote_code=True"
)


def remote_code(facts: ConfigFacts) -> Iterator[Seen]:
    """The key auto_map names Python code that comes with the model."""
    if facts.remote_code:
        count, first = len(facts.remote_code), facts.remote_code[0]
        known = facts.in_transformers or facts.own_code
        yield Seen(
            first,
            f"names code of the model's own ({count} class{'es' if count > 1 else ''})",
            severity="note" if known else "warning",
            hint=_OWN_CODE if facts.own_code else _IN_TRANSFORMERS if known else None,
        )


def named_implementation(facts: ConfigFacts) -> Iterator[Seen]:
    """The config names an implementation that transformers would fetch from the Hub."""
    for path, name in facts.implementations:
        if "/" in name:
            yield Seen(path, f"{name!r} names a repository, whose code would be run")
        elif name not in _KNOWN:
            yield Seen(
                path,
                f"{name!r} is no implementation of transformers",
                severity="warning",
                hint="loading may fail, or use what the model's own code registers; remove the key",
            )


def nested_trust(facts: ConfigFacts) -> Iterator[Seen]:
    """The config itself says trust_remote_code: true."""
    for path in facts.trusts:
        yield Seen(path, "true: the file grants itself the right to run code")


def token_outside(facts: ConfigFacts) -> Iterator[Seen]:
    """A special token's id is not in the vocabulary."""
    size = facts.spec.vocab_size
    for key, number in dict.fromkeys(facts.token_ids):
        if size is not None and number >= size:
            yield Seen(key, f"{number:,}, vocab_size is {size:,}")


def no_dtype(facts: ConfigFacts) -> Iterator[Seen]:
    """The config names no element type."""
    if facts.spec.dtype is None:
        yield Seen("dtype", "not given: the cache is sized for 16 bit")


def unknown_method(facts: ConfigFacts) -> Iterator[Seen]:
    """The weights are quantised in a way that is not known here."""
    found = facts.quantisation
    if found is not None and found.key != "quantization" and found.method not in _METHODS:
        yield Seen(found.key, f"quant_method {found.method!r} is not known here")


RULES: tuple[Rule[ConfigFacts], ...] = (
    Rule(
        code="H301",
        name="remote-code",
        severity="warning",
        hint="it runs with trust_remote_code=True only: read it first, and pin the revision",
        check=remote_code,
    ),
    Rule(
        code="H303",
        name="named-implementation",
        severity="error",
        hint="remove the key: some releases of transformers run that code without being asked"
        " (CVE-2026-4372)",
        check=named_implementation,
    ),
    Rule(
        code="H305",
        name="nested-trust",
        severity="warning",
        hint="only the caller may say this; remove the key",
        check=nested_trust,
    ),
    Rule(
        code="H504",
        name="token-outside-vocabulary",
        severity="warning",
        hint="looking that token up fails, and generation does not stop at it; correct the id",
        check=token_outside,
    ),
    Rule(
        code="H606",
        name="no-dtype",
        severity="note",
        hint="--kv-dtype gives another; transformers loads such weights as they are stored",
        check=no_dtype,
    ),
    Rule(
        code="H607",
        name="unknown-quantisation",
        severity="note",
        hint="without headers the stored bytes cannot be computed",
        check=unknown_method,
    ),
)
