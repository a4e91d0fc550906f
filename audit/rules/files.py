"""H1xx, H2xx, H309: what is stored: dtypes, tied heads, shards, the index's claims, pickles."""

import re
from collections.abc import Iterator
from itertools import islice

from headcount.model.dtypes import BITS, CONFIG_NAME, bytes_of

from .alike import by, such
from .rule import Sighting, rule
from .weight_facts import WeightFacts


@rule("H106", "dtype-mismatch", "warning", "they are cast when loaded; set dtype to what is meant")
def dtype(facts: WeightFacts) -> Iterator[Sighting]:
    """Most bytes are stored in another float type than the config names."""
    floats = {d: n for d, n in facts.census.bytes_by_dtype.items() if d in CONFIG_NAME}
    if facts.census.packed or facts.spec.dtype is None or not floats:
        return
    stored = CONFIG_NAME[max(floats, key=lambda name: floats[name])]
    if stored != facts.spec.dtype:
        yield Sighting(
            where="dtype",
            message=f"{facts.where} says {facts.spec.dtype}, the weights are stored as {stored}",
        )


@rule(
    "H107",
    "tied-embeddings",
    "error",
    "set tie_word_embeddings to true if the head is the embedding; else the file is incomplete",
)
def tied_embeddings(facts: WeightFacts) -> Iterator[Sighting]:
    """An untied head that is not stored, or a tied one that is."""
    embedding, head = facts.census.embedding, facts.census.head
    if embedding is None or facts.checkpoint.partial or facts.checkpoint.missing:
        return
    is_missing = head is None and not _has_coded_head(facts)
    if is_missing and not facts.spec.tie_word_embeddings and facts.has_head:
        yield Sighting(
            where="tie_word_embeddings",
            message="false, but no output head is stored: it would be random, without any error",
        )
    if head is not None and facts.spec.tie_word_embeddings:
        yield Sighting(
            severity="note",
            where=head.name,
            message=f"stored ({head.nbytes:,} bytes) although tie_word_embeddings is true",
            hint="counted once, as if both held the same values, which --scan finds out: where they"
            " do not, transformers loads this head as its own",
        )


def _has_coded_head(facts: WeightFacts) -> bool:
    """Whether a format that is not understood keeps the head under names of its own."""
    if facts.quantisation is None or facts.quantisation.unknown is None:
        return False
    parts = facts.inventory.parts
    return any(part == "output head" and not name.endswith(".bias") for name, part in parts.items())


@rule("H201", "missing-shard", "error", "download it again; counts leave its tensors out")
def missing_shard(facts: WeightFacts) -> Iterator[Sighting]:
    """The index names a file that is not there."""
    missing = facts.checkpoint.missing
    count = sum(len(names) for names in missing.values())
    for shard in islice(missing, 1):
        others = _others_missing(len(missing) - 1)
        yield Sighting(shard, f"named by the index for {count:,} tensors, but not there{others}")


def _others_missing(count: int) -> str:
    if count == 0:
        return ""
    return ", as is 1 more shard" if count == 1 else f", as are {count:,} more shards"


@rule(
    "H202",
    "stale-total-size",
    "warning",
    "the index is stale: tools that read it plan with the wrong size",
)
def total_size(facts: WeightFacts) -> Iterator[Sighting]:
    """The index claims other sizes than headers or config give, or it misses tensors."""
    checkpoint = facts.checkpoint
    if checkpoint.index is None:
        return
    if checkpoint.missing:
        yield from _claimed_size(facts, checkpoint.index.name)
        return
    yield from _claimed_parameters(facts, checkpoint.index.name)
    if checkpoint.total_size is not None and checkpoint.total_size != checkpoint.nbytes:
        yield Sighting(
            where=checkpoint.index.name,
            message=f"total_size says {checkpoint.total_size:,} bytes,"
            f" the headers add up to {checkpoint.nbytes:,}",
        )
    if checkpoint.unlisted:
        yield Sighting(
            where=checkpoint.index.name,
            message=f"{len(checkpoint.unlisted)} tensor(s) of its shards are not in weight_map,"
            f" such as {checkpoint.unlisted[0]}",
            hint="they are not loaded: the index is stale",
        )


_SLACK = 0.1  # of what is compared: biases and buffers that one side leaves out


def _claimed_size(facts: WeightFacts, where: str) -> Iterator[Sighting]:
    """Shards are missing, so the config alone can say what all of them would hold: plain floats of
    its dtype, perhaps with a stored copy of the embedding."""
    said, count, bits = facts.checkpoint.total_size, facts.counted, BITS.get(facts.spec.dtype or "")
    if said is None or count is None or bits is None or facts.quantisation or facts.beside:
        return
    if _holds(facts, count, bits, said):
        return
    described = f"{facts.where} describes {count:,} parameters of {facts.spec.dtype}"
    other = next((b for b in _WIDTHS if _holds(facts, count, b, said)), None)
    yield Sighting(
        where,
        f"total_size says {said:,} bytes, {described}, {bytes_of(count, bits):,} bytes",
        severity="note" if other else None,
        hint=f"so many take as much in {other} bit: the files are of another dtype than the config"
        if other
        else "the index and the config are of different models, or the index is stale",
    )


_WIDTHS = (16, 32)


def _holds(facts: WeightFacts, count: int, bits: int, said: int) -> bool:
    """Whether so many parameters take about `said` bytes, perhaps with a copy of the embedding."""
    more = (facts.spec.vocab_size or 0) * (facts.spec.hidden_size or 0)
    least, most = bytes_of(count, bits), bytes_of(count + more, bits)
    return (1 - _SLACK) * least <= said <= (1 + _SLACK) * most


def _claimed_parameters(facts: WeightFacts, where: str) -> Iterator[Sighting]:
    """Of packed weights some writers count codes, others what they stand for."""
    said, held = facts.checkpoint.total_parameters, facts.inventory.parameters
    if said is None or held is None:
        return
    stored = sum(line.elements for line in facts.inventory.by_part)
    least, most = min(held, stored), max(held, stored)
    if not (1 - _SLACK) * least <= said <= (1 + _SLACK) * most:
        yield Sighting(where, f"total_parameters says {said:,}, the headers hold {held:,}")


@rule(
    "H204",
    "tensor-in-two-shards",
    "warning",
    "loaders disagree about which one counts; write the shards again",
)
def two_shards(facts: WeightFacts) -> Iterator[Sighting]:
    """A tensor is stored in two shards."""
    files: dict[str, str] = {}
    twice: list[tuple[str, str, str]] = []
    for header in facts.checkpoint.files:
        for tensor in header.tensors:
            other = files.setdefault(tensor.name, tensor.file)
            if other != tensor.file:
                twice.append((tensor.name, other, tensor.file))
    if twice:
        name, one, two = twice[0]
        used = facts.checkpoint.tensors.get(name)
        kept = f"; the index takes {used.file}" if used is not None else ""
        names = [name for name, *_ in twice]
        yield Sighting(name, f"is in {one} and in {two}{kept}{such(names)}")


_NUMBERED = re.compile(r"(.+)-(\d{1,7})-of-(\d{1,7})\.safetensors")


@rule(
    "H205",
    "gap-in-shards",
    "warning",
    "the shards and the index are from different uploads; download both again",
)
def gap(facts: WeightFacts) -> Iterator[Sighting]:
    """A numbered set of shards lacks a number."""
    if facts.checkpoint.partial:
        return
    sets: dict[tuple[str, int], set[int]] = {}
    for name in (*(h.path.name for h in facts.checkpoint.files), *facts.checkpoint.missing):
        number = _NUMBERED.fullmatch(name)
        if number is not None:
            sets.setdefault((number[1], int(number[3])), set()).add(int(number[2]))
    for (stem, count), numbers in sets.items():
        if len(numbers) < count:
            first = next(n for n in range(1, count + 1) if n not in numbers)
            yield Sighting(
                f"{stem}-*", f"number {first} of {count} is neither in the index nor used"
            )


@rule("H212", "no-tensors", "error", "the file is a stub: save or download the weights again")
def no_tensors(facts: WeightFacts) -> Iterator[Sighting]:
    """The file holds no tensor at all. Of a pickle that cannot be said: some hide them."""
    checkpoint = facts.checkpoint
    if checkpoint.format != "pickle" and not checkpoint.tensors and not checkpoint.missing:
        yield Sighting(facts.checkpoint.files[0].path.name, "holds no tensor")


@rule(
    "H210",
    "unknown-format",
    "warning",
    "transformers 4 refuses such a file; write format: pt into its metadata",
)
def unknown_format(facts: WeightFacts) -> Iterator[Sighting]:
    """The header's metadata names no framework that transformers knows."""
    headers = [header for header in facts.checkpoint.files if header.metadata]
    for alike in by(headers, lambda header: header.metadata.get("format")):
        said, names = alike[0].metadata.get("format"), [header.path.name for header in alike]
        if said not in ("pt", "tf", "flax", "mlx", "np"):
            yield Sighting(names[0], f"__metadata__ gives format {said!r}{such(names, 'file')}")


@rule("H211", "no-total-size", "note", "older loaders read it; write the index again")
def no_total(facts: WeightFacts) -> Iterator[Sighting]:
    """The index does not say how many bytes it stands for."""
    if facts.checkpoint.index is not None and facts.checkpoint.total_size is None:
        yield Sighting(facts.checkpoint.index.name, "no metadata.total_size")


@rule(
    "H309",
    "dangerous-pickle",
    "error",
    "do not load it; take safetensors, or at least torch.load(weights_only=True)",
)
def dangerous_pickle(facts: WeightFacts) -> Iterator[Sighting]:
    """Loading a .bin or .pt file would import, and may call, more than tensors need."""
    for alike in by(facts.checkpoint.suspects.items(), lambda item: item[1]):
        (file, names), files = alike[0], [file for file, _ in alike]
        first = ", ".join(name[:80] for name in names[:3])
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        said = f"imports {first}{more}: loading it may run any program"
        yield Sighting(file, f"{said}{such(files, 'file')}")


RULES = (
    dtype,
    tied_embeddings,
    missing_shard,
    total_size,
    two_shards,
    gap,
    unknown_format,
    no_total,
    no_tensors,
    dangerous_pickle,
)
