"""H1xx, H2xx: what a whole model must hold beside attention, and what its names give away."""

import re
from collections.abc import Iterator

from headcount.arch.our_types import base_type
from headcount.model.mixers import Attention

from .facts import Facts
from .rule import Rule, Seen

_POSITIONS = (
    *("wpe.weight", "position_embeddings.weight", "embed_positions.weight"),
    "position_embedding.weight",
)
_INNER = re.compile(
    r"\.(\d{1,9})\.(?:\w+\.)*(?:gate_proj|up_proj|gate_up_proj|fc1|fc_in|c_fc|dense_h_to_4h|"
    r"intermediate\.dense|wi|wi_0|wi_1)\.weight$"
)
_LAYER = re.compile(r"(?:^|\.)\d+\.")
# Parameters in some classes, buffers in others.
_BUFFER_OR_PARAMETER = (
    *("e_score_correction_bias", "act_fn.beta", "act_fn.eps", "layer_scalar", "input_max"),
    *("input_min", "output_max", "output_min", "std_bias", "std_scale", "expert_bias"),
    "gate.bias",  # what files of DeepSeek-V4 call it
)
# Types whose class counts tables of positions that it computes, and never stores.
_NOT_STORED = frozenset({"marian"})
# What wrappers of a module put in front of every name.
_WRAPPERS = ("module.", "_orig_mod.", "base_model.model.", "_fsdp_wrapped_module.")


def biases(facts: Facts) -> Iterator[Seen]:
    """Attention biases are stored that the config rules out, or the other way round."""
    if facts.census.packed:
        return
    stored: dict[str, list[int]] = {}
    lacking: dict[str, list[int]] = {}
    for (_, index, *_), mixer, placed in facts.mixers():
        if not isinstance(mixer, Attention) or not placed:
            continue
        held = {
            letter
            for item in placed
            if item.place.parameter == "bias"
            for letter in _letters(item.place.part)
        }
        said = {part for part in "qkvo" if getattr(mixer, f"{part}_bias")}
        if not mixer.has_key_value:
            said -= {"k", "v"}
        for part in sorted(held - said):
            stored.setdefault(part, []).append(index)
        for part in sorted(said - held) if facts.whole else ():
            lacking.setdefault(part, []).append(index)
    yield from (_bias(part, seen, "stored, but not built") for part, seen in stored.items())
    yield from (_bias(part, seen, "built, but not stored") for part, seen in lacking.items())


def _letters(part: str | None) -> str:
    stem = (part or "").partition("_")[0]
    return stem if set(stem) <= set("gqkvo") else ""


def _bias(part: str, indices: list[int], message: str) -> Seen:
    return Seen(f"bias of {part}", f"{message} in {len(set(indices))} layer(s)")


def mlp_width(facts: Facts) -> Iterator[Seen]:
    """An MLP's matrix has another width than the config's intermediate size."""
    if facts.census.packed:
        return
    wrong: dict[tuple[int, int], list[str]] = {}
    for name, tensor in facts.checkpoint.tensors.items():
        number = _INNER.search(name)
        if number is None or len(tensor.shape) != 2 or facts.inventory.parts[name] != "mlp":
            continue
        width = _width(facts, name, int(number[1]))
        # 0: the row counts this type's MLP, if there is one, in another way than by a width.
        if width and not {width, 2 * width} & set(tensor.shape):
            found = next((n for n in tensor.shape if n != facts.spec.hidden_size), tensor.shape[0])
            wrong.setdefault((width, found), []).append(name)
    for (width, found), names in wrong.items():
        yield Seen(
            names[0], f"is {found} wide in {len(names)} matrices; {facts.where} makes it {width}"
        )


def _width(facts: Facts, name: str, index: int) -> int | None:
    stack = "encoder" if "encoder" in name.split(".") else "decoder"
    widths = facts.expected.mlp_widths
    return widths.get((stack, index), widths.get(("decoder", index)))


def positions(facts: Facts) -> Iterator[Seen]:
    """The table of learned positions has another number of rows than the config's."""
    rows = facts.expected.positions
    for name, tensor in facts.checkpoint.tensors.items():
        if (
            rows is None
            or not name.endswith(_POSITIONS)
            or facts.inventory.parts[name] != ("embeddings")
        ):
            continue
        if tensor.shape and tensor.shape[0] != rows:
            yield Seen(name, f"has {tensor.shape[0]:,} rows; {facts.where} makes it {rows:,}")


def final_norm(facts: Facts) -> Iterator[Seen]:
    """The norm behind the last layer is not stored."""
    if not facts.whole or not facts.expected.final_norm or not facts.census.layers:
        return
    outside = (
        name
        for name, part in facts.inventory.parts.items()
        if part == "norms" and not _LAYER.search(name)
    )
    if not any(outside):
        yield Seen("final norm", "no norm is stored outside the layers")


def embedding(facts: Facts) -> Iterator[Seen]:
    """No matrix with the rows of the vocabulary is stored."""
    size = facts.spec.vocab_size
    if not facts.whole or size is None or not facts.expected.final_norm or facts.inventory.codes:
        return
    if facts.census.embedding is not None and len(facts.census.embedding.shape) == 2:
        return
    if not any(
        size in tensor.shape and len(tensor.shape) == 2 and tensor is not facts.census.head
        for name, tensor in facts.checkpoint.tensors.items()
        if not _LAYER.search(name)
    ):
        yield Seen("embedding", f"no stored matrix has {size:,} rows")


def parameters(facts: Facts) -> Iterator[Seen]:
    """The config describes another number of parameters than the headers hold."""
    held, said = facts.inventory.parameters, facts.counted
    if not facts.whole or held is None or said is None:
        return
    held -= facts.inventory.part("mtp")
    tensors = facts.checkpoint.tensors.values()
    slack = sum(t.elements for t in tensors if t.name.endswith(_BUFFER_OR_PARAMETER))
    if held < said and base_type(facts.spec.model_type) in _NOT_STORED:
        return
    if not 0 <= held - said <= slack:
        more = "more" if held > said else "fewer"
        yield Seen(
            "parameters",
            f"{held:,} are stored, {abs(held - said):,} {more} than {facts.where} describes",
        )


def empty_tensors(facts: Facts) -> Iterator[Seen]:
    """A tensor has a dimension of size 0."""
    empty = [t for t in facts.checkpoint.tensors.values() if 0 in t.shape]
    if empty:
        yield Seen(
            empty[0].name, f"shape {list(empty[0].shape)}: {len(empty)} tensor(s) hold nothing"
        )


def odd_names(facts: Facts) -> Iterator[Seen]:
    """A tensor's name is empty, or holds control characters or a path."""
    for name in facts.checkpoint.tensors:
        if not name.strip() or not name.isprintable() or "/" in name or "\\" in name:
            yield Seen(repr(name), "is no name of a parameter")


def wrapped_names(facts: Facts) -> Iterator[Seen]:
    """All names carry the prefix of a training wrapper."""
    names = facts.checkpoint.tensors
    for wrapper in _WRAPPERS:
        if names and all(name.startswith(wrapper) for name in names):
            yield Seen(wrapper, f"stands in front of all {len(names):,} names")


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        code="H108",
        name="bias-mismatch",
        severity="warning",
        hint="stored biases are dropped, missing ones start at 0: set the config's bias flags",
        check=biases,
    ),
    Rule(
        code="H110",
        name="mlp-width-mismatch",
        severity="error",
        hint="loading fails on the shape; correct intermediate_size",
        check=mlp_width,
    ),
    Rule(
        code="H111",
        name="positions-mismatch",
        severity="error",
        hint="loading fails on the shape; correct max_position_embeddings",
        check=positions,
    ),
    Rule(
        code="H112",
        name="no-final-norm",
        severity="error",
        hint="it would be loaded as ones, without any error: the file is incomplete",
        check=final_norm,
    ),
    Rule(
        code="H113",
        name="no-embedding",
        severity="error",
        hint="it would be loaded with random values: the file is incomplete",
        check=embedding,
    ),
    Rule(
        code="H208",
        name="empty-tensor",
        severity="warning",
        hint="a sharded optimizer leaves such stubs (DeepSpeed ZeRO-3): gather before saving",
        check=empty_tensors,
    ),
    Rule(
        code="H209",
        name="odd-tensor-name",
        severity="warning",
        hint="never use it in a path or print it raw; rename it where the file was made",
        check=odd_names,
    ),
    Rule(
        code="H213",
        name="wrapped-names",
        severity="error",
        hint="no tensor would be found: save the inner module, or strip the prefix",
        check=wrapped_names,
    ),
)
# What is worth saying only where nothing else explains it.
LAST: tuple[Rule[Facts], ...] = (
    Rule(
        code="H109",
        name="parameters-mismatch",
        severity="warning",
        hint="another class than architectures names, extra heads, or an incomplete file",
        check=parameters,
    ),
)
