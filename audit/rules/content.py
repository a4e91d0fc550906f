"""H1xx, H2xx: what a whole model must hold beside attention, and what its names give away."""

import re
from collections.abc import Iterator

from headcount.arch.tensors.places import numbered
from headcount.model.mixers import Attention

from .alike import by, such
from .geometry import not_built
from .rule import Sighting, rule
from .weight_facts import WeightFacts

_POSITIONS = (
    *("wpe.weight", "position_embeddings.weight", "embed_positions.weight"),
    "position_embedding.weight",
)
# Ends of the matrices whose width is intermediate_size.
_WIDE = tuple(
    f".{module}.weight"
    for module in (
        *("gate_proj", "up_proj", "gate_up_proj", "fc1", "fc_in", "c_fc", "dense_h_to_4h"),
        *("intermediate.dense", "wi", "wi_0", "wi_1"),
    )
)
_INDEX = re.compile(r"\d{1,9}")
_WORD = re.compile(r"\w+")
_LAYER = re.compile(r"(?:^|\.)\d+\.")
# Parameters in some classes, buffers in others.
_BUFFER_OR_PARAMETER = (
    *("e_score_correction_bias", "moe.router_bias", "act_fn.beta", "act_fn.eps", "layer_scalar"),
    *("input_max", "input_min", "output_max", "output_min", "std_bias", "std_scale", "expert_bias"),
    "gate.bias",  # what files of DeepSeek-V4 call it
)
# What wrappers of a module put in front of every name.
_WRAPPERS = ("module.", "_orig_mod.", "base_model.model.", "_fsdp_wrapped_module.")


@rule(
    "H108",
    "bias-mismatch",
    "warning",
    "stored biases are dropped, missing ones start at 0: set the config's bias flags",
)
def biases(facts: WeightFacts) -> Iterator[Sighting]:
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
    yield from _of_parts(stored, "stored, but not built")
    yield from _of_parts(lacking, "built, but not stored")


def _letters(part: str | None) -> str:
    stem = (part or "").partition("_")[0]
    return stem if set(stem) <= set("gqkvo") else ""


def _of_parts(seen: dict[str, list[int]], message: str) -> Iterator[Sighting]:
    """One for all projections of which it is so in as many layers."""
    for alike in by(seen.items(), lambda item: len(set(item[1]))):
        parts, layers = [part for part, _ in alike], len(set(alike[0][1]))
        yield Sighting(f"bias of {', '.join(parts)}", f"{message} in {layers} layer(s)")


@rule(
    "H110",
    "mlp-width-mismatch",
    "error",
    "loading fails on the shape; correct intermediate_size",
)
def mlp_width(facts: WeightFacts) -> Iterator[Sighting]:
    """An MLP's matrix has another width than the config's intermediate size."""
    if facts.census.packed:
        return
    wrong: dict[tuple[int, int], list[str]] = {}
    for name, tensor in facts.checkpoint.tensors.items():
        number = _layer_number(name)
        if number is None or len(tensor.shape) != 2 or facts.inventory.parts[name] != "mlp":
            continue
        width = _width(facts, name, number)
        # 0: the body counts this type's MLP, if there is one, in another way than by a width.
        if width and not {width, 2 * width} & set(tensor.shape):
            found = next((n for n in tensor.shape if n != facts.spec.hidden_size), tensor.shape[0])
            wrong.setdefault((width, found), []).append(name)
    for (width, found), names in wrong.items():
        yield Sighting(
            names[0], f"is {found} wide in {len(names)} matrices; {facts.where} makes it {width}"
        )


def _layer_number(name: str) -> int | None:
    """The first number from which on nothing but words leads to a wide matrix; None for any other
    tensor. Each word is looked at once, however many there are."""
    stem = next((name[: -len(end)] for end in _WIDE if name.endswith(end)), None)
    number = None
    for word in reversed(stem.split(".")[1:] if stem else []):
        if _INDEX.fullmatch(word):
            number = int(word)
        elif not _WORD.fullmatch(word):
            break
    return number


def _width(facts: WeightFacts, name: str, index: int) -> int | None:
    stack = "encoder" if "encoder" in name.split(".") else "decoder"
    widths = facts.expected.mlp_widths
    return widths.get((stack, index), widths.get(("decoder", index)))


@rule(
    "H111",
    "positions-mismatch",
    "error",
    "loading fails on the shape; correct max_position_embeddings",
)
def positions(facts: WeightFacts) -> Iterator[Sighting]:
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
            yield Sighting(name, f"has {tensor.shape[0]:,} rows; {facts.where} makes it {rows:,}")


@rule(
    "H112",
    "no-final-norm",
    "error",
    "it would be loaded as ones, without any error: the file is incomplete",
)
def final_norm(facts: WeightFacts) -> Iterator[Sighting]:
    """The norm behind the last layer is not stored."""
    if not facts.whole or not facts.expected.final_norm or not facts.census.layers:
        return
    outside = (
        name
        for name, part in facts.inventory.parts.items()
        if part == "norms" and not _LAYER.search(name)
    )
    if not any(outside):
        yield Sighting("final norm", "no norm is stored outside the layers")


@rule(
    "H113",
    "no-embedding",
    "error",
    "it would be loaded with random values: the file is incomplete",
)
def embedding(facts: WeightFacts) -> Iterator[Sighting]:
    """No matrix with the rows of the vocabulary is stored."""
    size = facts.spec.vocab_size
    if not facts.whole or size is None or not facts.expected.final_norm or facts.inventory.codes:
        return
    if facts.census.embedding is not None and len(facts.census.embedding.shape) == 2:
        return
    # transformers ties either to the other, whichever is stored.
    unread = None if facts.spec.tie_word_embeddings and facts.has_head else facts.census.head
    if not any(
        size in tensor.shape and len(tensor.shape) == 2 and tensor is not unread
        for name, tensor in facts.checkpoint.tensors.items()
        if not _LAYER.search(name)
    ):
        yield Sighting("embedding", f"no stored matrix has {size:,} rows")


@rule(
    "H114",
    "no-experts",
    "error",
    "the weights are those of a dense model: take the config that belongs to them",
)
def experts(facts: WeightFacts) -> Iterator[Sighting]:
    """The config describes a mixture of experts, and no expert is stored."""
    if facts.whole and facts.idle and "experts" not in facts.inventory.parts.values():
        yield Sighting(
            "experts",
            f"{facts.where} leaves {facts.idle:,} parameters of experts unused for each token; none"
            " is stored",
        )


@rule(
    "H109",
    "parameters-mismatch",
    "warning",
    "another class than architectures names, extra heads, or an incomplete file",
)
def parameters(facts: WeightFacts) -> Iterator[Sighting]:
    """The config describes another number of parameters than the headers hold."""
    held, said = facts.inventory.parameters, facts.counted
    if not facts.whole or held is None or said is None:
        return
    if held == said:  # MiMo's class builds the layers that predict
        return
    held -= facts.inventory.part("mtp")
    tensors = facts.checkpoint.tensors.values()
    slack = sum(t.elements for t in tensors if t.name.endswith(_BUFFER_OR_PARAMETER))
    slack += _left_out(facts) + _biases_of_codes(facts)
    if held < said and facts.stored.computes_positions:
        return
    if not 0 <= held - said <= slack:
        more = "more" if held > said else "fewer"
        further = held > said and held - said <= _further(facts)
        yield Sighting(
            "parameters",
            f"{held:,} are stored, {abs(held - said):,} {more} than {facts.where} describes",
            severity="note" if further else None,
            hint=_FURTHER if further else None,
        )


_FURTHER = "heads or poolers of another task, which the class does not load"


def _biases_of_codes(facts: WeightFacts) -> int:
    """AutoGPTQ gave each module that it packed a bias of zeros, which the class does not have."""
    tensors = facts.checkpoint.tensors
    biases = (f"{name.removesuffix('qweight')}bias" for name in facts.inventory.codes)
    return sum(tensors[name].elements for name in biases if name in tensors)


def _left_out(facts: WeightFacts) -> int:
    """Parameters that the class expects and does not load, inside attention or outside the
    layers."""
    outside = (name for name in facts.left_out if numbered(name) is None)
    names = {*outside, *(facts.left_out & {*not_built(facts)})}
    tensors, parts = facts.checkpoint.tensors, facts.inventory.parts
    counted = (n for n in names if parts[n] not in ("mtp", "buffers", "copies"))
    return sum(tensors[name].elements for name in counted)


def _further(facts: WeightFacts) -> int:
    """What stands outside the layers and is no table or tower: a head, or what feeds one."""
    parts, usual = facts.inventory.parts, facts.census.head
    tensors = (t for t in facts.checkpoint.tensors.values() if t is not usual)
    outside = (t for t in tensors if not _LAYER.search(t.name))
    return sum(t.elements for t in outside if parts[t.name] in ("output head", "other"))


@rule(
    "H208",
    "empty-tensor",
    "warning",
    "a sharded optimizer leaves such stubs (DeepSpeed ZeRO-3): gather before saving",
)
def empty_tensors(facts: WeightFacts) -> Iterator[Sighting]:
    """A tensor has a dimension of size 0."""
    empty = [t for t in facts.checkpoint.tensors.values() if 0 in t.shape]
    if empty:
        yield Sighting(
            empty[0].name, f"shape {list(empty[0].shape)}: {len(empty)} tensor(s) hold nothing"
        )


@rule(
    "H209",
    "odd-tensor-name",
    "warning",
    "never use it in a path or print it raw; rename it where the file was made",
)
def odd_names(facts: WeightFacts) -> Iterator[Sighting]:
    """A tensor's name is empty, or holds control characters or a path."""
    names = [name for name in facts.checkpoint.tensors if _is_odd(name)]
    if names:
        yield Sighting(repr(names[0]), f"is no name of a parameter{such(names)}")


def _is_odd(name: str) -> bool:
    return not name.strip() or not name.isprintable() or "/" in name or "\\" in name


@rule(
    "H213",
    "wrapped-names",
    "error",
    "no tensor would be found: save the inner module, or strip the prefix",
)
def wrapped_names(facts: WeightFacts) -> Iterator[Sighting]:
    """All names begin with the prefix of a training wrapper."""
    for wrapper in _WRAPPERS:
        if _stands_in_front(wrapper, facts):
            yield Sighting(
                wrapper, f"stands in front of all {len(facts.checkpoint.tensors):,} names"
            )
            return


@rule(
    "H217",
    "foreign-prefix",
    "error",
    "no tensor would be found: strip the prefix, or load with a key_mapping that does",
)
def foreign_prefix(facts: WeightFacts) -> Iterator[Sighting]:
    """All names begin with a word that no class of the type has in front."""
    first, dot, _ = next(iter(facts.checkpoint.tensors), "").partition(".")
    word = f"{first}."
    is_foreign = dot and facts.roots and first not in facts.roots and word not in _WRAPPERS
    if is_foreign and _stands_in_front(word, facts):
        yield _in_front(word, facts)


def _in_front(word: str, facts: WeightFacts) -> Sighting:
    return Sighting(word, f"stands in front of all {len(facts.checkpoint.tensors):,} names")


def _stands_in_front(word: str, facts: WeightFacts) -> bool:
    names = facts.checkpoint.tensors
    return bool(names) and all(name.startswith(word) for name in names)


RULES = (
    biases,
    mlp_width,
    positions,
    final_norm,
    embedding,
    experts,
    empty_tensors,
    odd_names,
    wrapped_names,
    foreign_prefix,
)
# What is worth saying only where nothing else explains it.
LAST = (parameters,)
