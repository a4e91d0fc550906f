"""What the headers say: attention tensors by layer, embeddings, dtypes, buffers and copies."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from .family.names import BUFFERS, TensorNames
from .family.places import PLAIN, Place, layer_indices, place, prefix_of
from .family.stacks import Stacks, find_stacks
from .mixers import Attention, LatentAttention, Mixer, Parts
from .source.checkpoint import Checkpoint
from .source.safetensors import TensorInfo
from .spec import MixerKey, ModelSpec

# Ends of the names of the input embedding and of the output head.
EMBEDDINGS = (
    *("shared.weight", "embed_tokens.weight", "wte.weight", "embed_in.weight"),
    *("word_embeddings.weight", "tok_embeddings.weight", "embedding.word_embeddings.weight"),
    *("transformer.w.weight", "token_embedding.weight"),
    "token_embd.weight",  # GGUF
)
HEADS = (
    *("lm_head.weight", "lm_head.decoder.weight", "predictions.decoder.weight"),
    "lm_head.out_proj.weight",
    "proj_out.weight",  # Whisper
    "embed_out.weight",
    "output_layer.weight",
    "output.weight",
    *("generator_lm_head.weight", "vocab_projector.weight", "pred_layer.proj.weight"),
    *("lm_loss.weight", "unembed.weight", "output_projection.weight", "lm_heads.0.weight"),
    "head.weight",
    "decoder.weight",  # ModernBERT
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
    stacks = find_stacks(checkpoint.tensors, names, spec.layers, others=others)
    for tensor in checkpoint.tensors.values():
        spot = _place(tensor.name, names, stacks.lists)
        if spot is None or is_buffer(tensor):
            continue
        if spot.part is None:
            strangers.append(tensor.name)
        else:
            key = MixerKey(spot.stack, spot.index, spot.cross, spot.nth)
            placed = Placed(tensor=tensor, place=spot, transposed=names[spot.stack].transposed)
            layers.setdefault(key, []).append(placed)
    embedding, head = (_find(checkpoint, ends, stacks) for ends in (EMBEDDINGS, HEADS))
    return Census(
        layers={key: tuple(placed) for key, placed in layers.items()},
        stacks=stacks,
        strangers=tuple(strangers),
        indices=layer_indices(checkpoint.tensors, stacks.lists),
        embedding=embedding,
        head=head,
        bytes_by_dtype=_bytes_by_dtype(checkpoint, stacks),
        packed=_is_packed(layers),
    )


def _place(name: str, names: Mapping[str, TensorNames], stacks: Mapping[str, str]) -> Place | None:
    prefix = prefix_of(name)
    stack = None if prefix is None else stacks.get(prefix)
    return None if stack is None else place(name, names[stack], stacks)


def _find(checkpoint: Checkpoint, ends: tuple[str, ...], stacks: Stacks) -> TensorInfo | None:
    """The tensor with one of these ends, outside every numbered layer and other models."""
    for end in ends:
        for name, tensor in checkpoint.tensors.items():
            whole = name == end or name.endswith("." + end)
            numbered = any(word.isdigit() for word in name.split(".")[:-2])
            if whole and not numbered and stacks.tower(name) is None:
                return tensor
    return None


def _bytes_by_dtype(checkpoint: Checkpoint, stacks: Stacks) -> dict[str, int]:
    """Of the model itself: its towers may have dtypes of their own."""
    count: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        if stacks.tower(tensor.name) is None:
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
        *("global_mean", "global_invstd", "pos_idx_to_embed", "tid2eid", "balancing_biases"),
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
            item.place.parameter.rpartition(".")[2] not in PLAIN
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
