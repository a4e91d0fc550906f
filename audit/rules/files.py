"""Rules on what is stored: dtypes, tied heads, shards, and the index's claims."""

from collections.abc import Iterator

from ..dtypes import CONFIG_NAME
from ..report import Finding
from .facts import Facts


def dtype(facts: Facts) -> Iterator[Finding]:
    """H106: most bytes are stored in another float type than the config names."""
    floats = {d: n for d, n in facts.census.bytes_by_dtype.items() if d in CONFIG_NAME}
    if facts.census.packed or facts.spec.dtype is None or not floats:
        return
    stored = CONFIG_NAME[max(floats, key=lambda name: floats[name])]
    if stored != facts.spec.dtype:
        yield Finding(
            code="H106",
            severity="warning",
            where="dtype",
            message=f"{facts.where} says {facts.spec.dtype}, the weights are stored as {stored}",
            hint="they are cast when loaded; set dtype to what is meant",
        )


def tied_embeddings(facts: Facts) -> Iterator[Finding]:
    """H107: an untied head that is not stored, or a tied one that is."""
    embedding, head = facts.census.embedding, facts.census.head
    if embedding is None or facts.checkpoint.partial or facts.checkpoint.missing:
        return
    if head is None and not facts.spec.tie_word_embeddings and facts.has_head:
        yield Finding(
            code="H107",
            severity="error",
            where="tie_word_embeddings",
            message="false, but no output head is stored: it would be random, without any error",
            hint="set tie_word_embeddings to true if the head is the embedding; else the file is"
            " incomplete",
        )
    if head is not None and facts.spec.tie_word_embeddings:
        yield Finding(
            code="H107",
            severity="note",
            where=head.name,
            message=f"stored ({head.nbytes:,} bytes) although tie_word_embeddings is true",
            hint="transformers uses the embedding; the copy is only worth its removal",
        )


def missing_shard(facts: Facts) -> Iterator[Finding]:
    """H201: the index names a file that is not there."""
    for shard, names in facts.checkpoint.missing.items():
        yield Finding(
            code="H201",
            severity="error",
            where=shard,
            message=f"named by the index for {len(names):,} tensors, but not there",
            hint="download it again; counts leave its tensors out",
        )


def total_size(facts: Facts) -> Iterator[Finding]:
    """H202: the index's total_size is not what the headers add up to, or it misses tensors."""
    checkpoint = facts.checkpoint
    if checkpoint.index is None or checkpoint.missing:
        return
    if checkpoint.total_size is not None and checkpoint.total_size != checkpoint.nbytes:
        yield Finding(
            code="H202",
            severity="warning",
            where=checkpoint.index.name,
            message=f"total_size says {checkpoint.total_size:,} bytes,"
            f" the headers add up to {checkpoint.nbytes:,}",
            hint="the index is stale: tools that read it plan with the wrong size",
        )
    if checkpoint.unlisted:
        yield Finding(
            code="H202",
            severity="warning",
            where=checkpoint.index.name,
            message=f"{len(checkpoint.unlisted)} tensor(s) of its shards are not in weight_map,"
            f" such as {checkpoint.unlisted[0]}",
            hint="they are not loaded: the index is stale",
        )
