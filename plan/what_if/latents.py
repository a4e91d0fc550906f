"""A model whose cache holds latents, as `headcount convert --latent` can make it for an engine.

transformers loads those of any class by a modelling file of ours; vLLM and SGLang load multi-head
latent attention, as which layers like Llama's can be written (--home mla).
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from headcount.arch.latent_home import keeps_latents
from headcount.arch.low_rank import with_latent
from headcount.arch.read_config import read_config
from headcount.arch.rehoming.deepseek import LIKE_LLAMA, misfit, read_old
from headcount.model.decoder_attentions import attentions
from headcount.model.errors import HeadcountError
from headcount.model.latent_rank import full_rank, kept_elements
from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.spec import ModelSpec

from ..engines.engine import Engine
from ..planned_model import PlannedModel
from .variants import Variant, variant_of, with_layers

SHARES = (Fraction(1, 2), Fraction(1, 4))  # of the elements that are kept now


def latent_variants(model: PlannedModel, engine: Engine) -> Iterator[Variant]:
    """As the engine loads them; none of a model that the converter refuses, such as a GGUF file."""
    home = engine.latents
    if home is None or model.config.get("quantization_config") or not _keeps_latents(model):
        return
    if home == "latent":
        yield from (_rebuilt(model.spec, share) for share in SHARES)
    elif (mixer := _like_llama(model)) is not None:
        yield from _latent_attention(model.spec, mixer, engine.latent_sizes)


def _keeps_latents(model: PlannedModel) -> bool:
    """As far as its config tells."""
    if model.tensors is not None:
        return False
    try:
        reading = read_config(model.config, model.model_id)
    except HeadcountError:
        return False
    return keeps_latents(model.spec.model_type, reading)


def _rebuilt(spec: ModelSpec, share: Fraction) -> Variant:
    own = set(attentions(spec).values())

    def change(mixer: Mixer) -> Mixer:
        if mixer not in own:
            return mixer
        rank = min(int(share * kept_elements(mixer)), full_rank(mixer))
        return with_latent(mixer, rank)

    after = variant_of(f"latents of {share}", spec, with_layers(spec, change))
    return replace(after, latent=f"--latent {share}")


def _like_llama(model: PlannedModel) -> Attention | None:
    """The attention of all layers of a model that DeepSeek-V3's class can be written for."""
    spec = model.spec
    if spec.model_type not in LIKE_LLAMA or spec.dtype == "float16":
        return None
    found = attentions(spec)
    if misfit(read_old(model.config, spec.model_type)) or len(set(found.values())) != 1:
        return None
    (mixer,) = set(found.values())
    is_plain = mixer.head_dim % 2 == 0 and mixer.window is None
    return mixer if is_plain and len(found) == len(spec.layers) else None


def _latent_attention(
    spec: ModelSpec, mixer: Attention, sizes: tuple[int, ...]
) -> Iterator[Variant]:
    """One key of a head's size rotates for all heads; the rest of a size, or of a share, is the
    latent."""
    kept = kept_elements(mixer)
    wanted = {str(size): size for size in sizes if size < kept} if sizes else _shares(kept)
    for named, elements in wanted.items():
        rank = min(elements - mixer.head_dim, full_rank(mixer))
        if rank > 0 and (not sizes or rank + mixer.head_dim in sizes):
            name = f"MLA, latent of {rank} + {mixer.head_dim}"
            after = variant_of(name, spec, _with_one_mixer(spec, _decoupled(mixer, rank)))
            yield replace(after, latent=f"--latent {named} --home mla")


def _shares(kept: int) -> dict[str, int]:
    return {str(share): int(share * kept) for share in SHARES}


def _decoupled(mixer: Attention, rank: int) -> LatentAttention:
    return LatentAttention(
        hidden_size=mixer.hidden_size,
        num_attention_heads=mixer.num_attention_heads,
        q_lora_rank=None,
        kv_lora_rank=rank,
        qk_nope_head_dim=mixer.head_dim,
        qk_rope_head_dim=mixer.head_dim,
        v_head_dim=mixer.v_head_dim,
    )


def _with_one_mixer(spec: ModelSpec, made: LatentAttention) -> ModelSpec:
    """In every layer."""
    return with_layers(spec, lambda mixer: made)
