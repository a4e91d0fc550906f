"""Rules on what is stored: dtypes, tied heads, shards, and the index's claims."""

import re
from collections.abc import Iterator

from headcount.model.dtypes import CONFIG_NAME

from .facts import Facts
from .rule import Rule, Seen


def dtype(facts: Facts) -> Iterator[Seen]:
    """Most bytes are stored in another float type than the config names."""
    floats = {d: n for d, n in facts.census.bytes_by_dtype.items() if d in CONFIG_NAME}
    if facts.census.packed or facts.spec.dtype is None or not floats:
        return
    stored = CONFIG_NAME[max(floats, key=lambda name: floats[name])]
    if stored != facts.spec.dtype:
        yield Seen(
            where="dtype",
            message=f"{facts.where} says {facts.spec.dtype}, the weights are stored as {stored}",
        )


def tied_embeddings(facts: Facts) -> Iterator[Seen]:
    """An untied head that is not stored, or a tied one that is."""
    embedding, head = facts.census.embedding, facts.census.head
    if embedding is None or facts.checkpoint.partial or facts.checkpoint.missing:
        return
    if head is None and not facts.spec.tie_word_embeddings and facts.has_head:
        yield Seen(
            where="tie_word_embeddings",
            message="false, but no output head is stored: it would be random, without any error",
        )
    if head is not None and facts.spec.tie_word_embeddings:
        yield Seen(
            severity="note",
            where=head.name,
            message=f"stored ({head.nbytes:,} bytes) although tie_word_embeddings is true",
            hint="transformers uses the embedding; the copy is only worth its removal",
        )


def missing_shard(facts: Facts) -> Iterator[Seen]:
    """The index names a file that is not there."""
    for shard, names in facts.checkpoint.missing.items():
        yield Seen(
            where=shard,
            message=f"named by the index for {len(names):,} tensors, but not there",
        )


def total_size(facts: Facts) -> Iterator[Seen]:
    """The index's total_size is not what the headers add up to, or it misses tensors."""
    checkpoint = facts.checkpoint
    if checkpoint.index is None or checkpoint.missing:
        return
    if checkpoint.total_size is not None and checkpoint.total_size != checkpoint.nbytes:
        yield Seen(
            where=checkpoint.index.name,
            message=f"total_size says {checkpoint.total_size:,} bytes,"
            f" the headers add up to {checkpoint.nbytes:,}",
        )
    if checkpoint.unlisted:
        yield Seen(
            where=checkpoint.index.name,
            message=f"{len(checkpoint.unlisted)} tensor(s) of its shards are not in weight_map,"
            f" such as {checkpoint.unlisted[0]}",
            hint="they are not loaded: the index is stale",
        )


def two_shards(facts: Facts) -> Iterator[Seen]:
    """A tensor is stored in two shards."""
    files: dict[str, str] = {}
    for header in facts.checkpoint.files:
        for tensor in header.tensors:
            other = files.setdefault(tensor.name, tensor.file)
            if other != tensor.file:
                used = facts.checkpoint.tensors.get(tensor.name)
                kept = f"; the index takes {used.file}" if used is not None else ""
                yield Seen(tensor.name, f"is in {other} and in {tensor.file}{kept}")


_NUMBERED = re.compile(r"(.+)-(\d{1,7})-of-(\d{1,7})\.safetensors")


def gap(facts: Facts) -> Iterator[Seen]:
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
            yield Seen(f"{stem}-*", f"number {first} of {count} is neither in the index nor used")


def no_tensors(facts: Facts) -> Iterator[Seen]:
    """The file holds no tensor at all. Of a pickle that cannot be said: some hide them."""
    checkpoint = facts.checkpoint
    if checkpoint.format != "pickle" and not checkpoint.tensors and not checkpoint.missing:
        yield Seen(facts.checkpoint.files[0].path.name, "holds no tensor")


def unknown_format(facts: Facts) -> Iterator[Seen]:
    """The header's metadata names no framework that transformers knows."""
    for header in facts.checkpoint.files:
        said = header.metadata.get("format")
        if header.metadata and said not in ("pt", "tf", "flax", "mlx", "np"):
            yield Seen(header.path.name, f"__metadata__ gives format {said!r}")


def no_total(facts: Facts) -> Iterator[Seen]:
    """The index does not say how many bytes it stands for."""
    if facts.checkpoint.index is not None and facts.checkpoint.total_size is None:
        yield Seen(facts.checkpoint.index.name, "no metadata.total_size")


RULES: tuple[Rule[Facts], ...] = (
    Rule(
        code="H106",
        name="dtype-mismatch",
        severity="warning",
        hint="they are cast when loaded; set dtype to what is meant",
        check=dtype,
    ),
    Rule(
        code="H107",
        name="tied-embeddings",
        severity="error",
        hint="set tie_word_embeddings to true if the head is the embedding; else the file is"
        " incomplete",
        check=tied_embeddings,
    ),
    Rule(
        code="H201",
        name="missing-shard",
        severity="error",
        hint="download it again; counts leave its tensors out",
        check=missing_shard,
    ),
    Rule(
        code="H202",
        name="stale-total-size",
        severity="warning",
        hint="the index is stale: tools that read it plan with the wrong size",
        check=total_size,
    ),
    Rule(
        code="H204",
        name="tensor-in-two-shards",
        severity="warning",
        hint="loaders disagree about which one counts; write the shards again",
        check=two_shards,
    ),
    Rule(
        code="H205",
        name="gap-in-shards",
        severity="warning",
        hint="the shards and the index are from different uploads; download both again",
        check=gap,
    ),
    Rule(
        code="H210",
        name="unknown-format",
        severity="warning",
        hint="transformers 4 refuses such a file; write format: pt into its metadata",
        check=unknown_format,
    ),
    Rule(
        code="H211",
        name="no-total-size",
        severity="note",
        hint="older loaders read it; write the index again",
        check=no_total,
    ),
    Rule(
        code="H212",
        name="no-tensors",
        severity="error",
        hint="the file is a stub: save or download the weights again",
        check=no_tensors,
    ),
)
