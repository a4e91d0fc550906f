"""What the headers say: attention tensors by layer, embeddings, dtypes, buffers and copies."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headcount.arch.tensors.names import BUFFERS, TensorNames
from headcount.arch.tensors.places import (
    PLAIN_PARAMETERS,
    Found,
    Numbered,
    Place,
    find_part,
    numbered,
    place_of,
)
from headcount.arch.tensors.stacks import Stacks, find_stacks
from headcount.model.mixers import Attention, LatentAttention, Mixer, Parts
from headcount.model.spec import MixerKey, ModelSpec
from headcount.sources.checkpoint import Checkpoint
from headcount.sources.safetensors import TensorInfo

# Ends of the names of the input embedding and of the output head.
EMBEDDINGS = (
    *("shared.weight", "embed_tokens.weight", "wte.weight", "embed_in.weight"),
    *("word_embeddings.weight", "tok_embeddings.weight", "embedding.word_embeddings.weight"),
    *("transformer.w.weight", "token_embedding.weight"),
    "token_embd.weight",  # GGUF
)
HEADS = (
    *("lm_head.weight", "lm_head.decoder.weight", "predictions.decoder.weight"),
    *("lm_head.out_proj.weight", "codebooks_head.weight", "audio_lm_head.weight"),
    "proj_out.weight",  # Whisper
    "embed_out.weight",
    "output_layer.weight",
    "output.weight",
    *("generator_lm_head.weight", "vocab_projector.weight", "pred_layer.proj.weight"),
    *("lm_loss.weight", "unembed.weight", "output_projection.weight", "lm_heads.0.weight"),
    "head.weight",
    "decoder.weight",  # lm_head.decoder of RoBERTa, cls.predictions.decoder of BERT
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A tensor and where in the model it stands."""

    tensor: TensorInfo
    place: Place
    transposed: bool = False

    @property
    def out_in(self) -> tuple[int, ...]:
        """The shape of a matrix as [out, in]."""
        return self.tensor.shape[::-1] if self.transposed else self.tensor.shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Census:
    """The attention tensors per mixer, and what else the rules ask for.

    `stacks` says which lists of layers are the config's, and what stands apart from them.
    `packed`: some weight is stored as codes, so that elements are not parameters.
    """

    layers: Mapping[MixerKey, tuple[Placed, ...]]
    stacks: Stacks
    strangers: tuple[str, ...]
    indices: Mapping[str, frozenset[int]]
    embedding: TensorInfo | None
    head: TensorInfo | None
    bytes_by_dtype: Mapping[str, int]
    packed: bool


def take_census(
    checkpoint: Checkpoint,
    spec: ModelSpec,
    names: Mapping[str, TensorNames],
    *,
    others: str | None = None,
) -> Census:
    """Sorts the tensors of `checkpoint` by their place; looks at names and shapes only.

    `names` are those of each stack; `others` is what further models are that the config describes.
    """
    layers: dict[MixerKey, list[Placed]] = {}
    strangers: list[str] = []
    spots = {name: numbered(name) for name in checkpoint.tensors}
    in_lists = {name: at for name, at in spots.items() if at is not None}
    stacks = find_stacks(in_lists.values(), names, spec.layers, others=others)
    for stack, tensor, spot in _places(checkpoint.tensors, in_lists, names, stacks.lists):
        if is_buffer(tensor):
            continue
        if spot.part is None:
            strangers.append(tensor.name)
        else:
            key = MixerKey(stack, spot.index, spot.cross, spot.nth)
            placed = Placed(tensor=tensor, place=spot, transposed=names[stack].turns(spot.module))
            layers.setdefault(key, []).append(placed)
    outside = [n for n, at in spots.items() if at is None or "." not in at.inside]
    embedding, head = (_find(checkpoint, outside, ends, stacks) for ends in (EMBEDDINGS, HEADS))
    return Census(
        layers={key: tuple(placed) for key, placed in layers.items()},
        stacks=stacks,
        strangers=tuple(strangers),
        indices=_indices(in_lists.values(), stacks.lists),
        embedding=embedding,
        head=head,
        bytes_by_dtype=_bytes_by_dtype(checkpoint, in_lists, stacks),
        packed=_is_packed(layers),
    )


def _places(
    tensors: Mapping[str, TensorInfo],
    in_lists: Mapping[str, Numbered],
    names: Mapping[str, TensorNames],
    stacks: Mapping[str, str],
) -> Iterator[tuple[str, TensorInfo, Place]]:
    """The attention tensors of `stacks`, each with its stack. Layers are alike: each name in a
    layer is read once."""
    read: dict[tuple[str, str], Found | None] = {}
    for name, at in in_lists.items():
        stack = stacks.get(at.prefix)
        if stack is None:
            continue
        key = (stack, at.inside)
        if key not in read:
            read[key] = find_part(at.inside, names[stack])
        found = read[key]
        if found is not None:
            yield stack, tensors[name], place_of(found, at.number)


def _indices(in_lists: Iterable[Numbered], stacks: Mapping[str, str]) -> dict[str, frozenset[int]]:
    """For each stack the layer numbers that stand in tensor names."""
    found: dict[str, set[int]] = {stack: set() for stack in stacks.values()}
    for at in in_lists:
        if at.prefix in stacks:
            found[stacks[at.prefix]].add(at.number)
    return {stack: frozenset(numbers) for stack, numbers in found.items()}


def _find(
    checkpoint: Checkpoint, outside: Iterable[str], ends: tuple[str, ...], stacks: Stacks
) -> TensorInfo | None:
    """The tensor with one of these ends, outside every numbered layer and other models."""
    for end in ends:
        for name in outside:
            whole = name == end or name.endswith("." + end)
            if whole and stacks.tower(name.removesuffix(end)) is None:
                return checkpoint.tensors[name]
    return None


def _bytes_by_dtype(
    checkpoint: Checkpoint, in_lists: Mapping[str, Numbered], stacks: Stacks
) -> dict[str, int]:
    """Of the model itself: its towers may have dtypes of their own."""
    count: Counter[str] = Counter()
    for name, tensor in checkpoint.tensors.items():
        at = in_lists.get(name)
        if (at is not None and at.prefix in stacks.lists) or stacks.tower(name) is None:
            count[tensor.dtype] += tensor.nbytes
    return dict(count.most_common())


def copies(tensors: Mapping[str, TensorInfo], census: Census, *, tied: bool) -> frozenset[str]:
    """Names of tensors that the class shares with the embedding: a tied head, and the embeddings of
    both stacks of an encoder-decoder beside the shared one."""
    embedding, head = census.embedding, census.head
    if embedding is None or not tied:
        return frozenset()
    found = {head.name} if head is not None else set()
    if embedding.name.rpartition(".")[0].endswith("shared"):
        found |= {
            name
            for name, tensor in tensors.items()
            if name.endswith("embed_tokens.weight") and tensor.shape == embedding.shape
        }
    return frozenset(found)


# Last words of names that are buffers in every class that stores them.
_BUFFERS = frozenset(
    {
        *("masked_bias", "inv_freq", "position_ids", "final_logits_bias"),
        *("running_mean", "running_var", "num_batches_tracked"),  # of batch norms
        *("slope_rate", "query_decay", "key_decay", "diagonal_decay"),  # MiniMax
        *("weight_integer", "bias_integer", "weight_scaling_factor", "fc_scaling_factor"),  # I-BERT
        *("act_scaling_factor", "x_min", "x_max", "shift"),
        *("cluster_size", "embed_avg", "inited"),  # vector quantisers
        *("cluster_usage", "embed_sum", "initialized"),
        *("norm_mean", "norm_std", "global_mean", "global_invstd"),
        *("pos_idx_to_embed", "tid2eid", "balancing_biases"),
        *("k_scale", "v_scale", "q_scale", "kv_scale", "prob_scale"),  # of a cache in 8 bit
        *("k_zero_point", "v_zero_point", "k_global_scale", "v_global_scale"),
    }
)


def is_buffer(tensor: TensorInfo) -> bool:
    """Causal masks, rotary frequencies, indices and logit biases that are no parameters."""
    module, _, last = tensor.name.rpartition(".")
    if last in _BUFFERS:
        return True
    return (
        last in BUFFERS
        and module.rpartition(".")[2] in ("attn", "attention")
        and (len(tensor.shape) == 4)
    )


def _is_packed(layers: Mapping[MixerKey, list[Placed]]) -> bool:
    return any(
        item.place.part in ("q", "k", "v", "o", "qkv")
        and (
            item.place.parameter.rpartition(".")[2] not in PLAIN_PARAMETERS
            or item.tensor.dtype not in ("F64", "F32", "F16", "BF16")
        )
        for placed in layers.values()
        for item in placed
    )


def count_parts(placed: tuple[Placed, ...], mixer: Mixer) -> Parts:
    """Attention parameters of one mixer from its headers; fused tensors are split by the widths."""
    total = Parts()
    for item in placed:
        total += _split(item, mixer)
    return total


def _split(item: Placed, mixer: Mixer) -> Parts:
    """A part of several matrices (`o_a`, `v_delayed`) is called by its first letter."""
    part, elements = item.place.part or "", item.tensor.elements
    if part == "":
        return Parts()
    if isinstance(mixer, LatentAttention) and part in ("q_a", "kv_a", "kv_b"):
        return _split_latent(part, elements, mixer)
    part = part.partition("_")[0]
    if part in ("q", "k", "v", "o", "norm", "other"):
        return Parts(**{part: elements})
    assert isinstance(mixer, Attention)
    width = mixer.out_features(part)
    counts = {x: elements * mixer.out_features(x) // width for x in part}
    return Parts(other=counts.pop("g", 0), **counts)


def _split_latent(part: str, elements: int, mixer: LatentAttention) -> Parts:
    if part == "q_a":
        return Parts(q=elements)
    if part == "kv_a":
        return Parts(k=elements)
    key = elements * mixer.qk_nope_head_dim // (mixer.qk_nope_head_dim + mixer.v_head_dim)
    return Parts(k=key, v=elements - key)
