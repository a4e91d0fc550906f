"""Source and result on the same tokens: what the conversion did to the logits, to generation and to
the cache. Both run in float32 (float64 where the weights are that), one after the other. The source
runs without what its pruned query heads give."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, PreTrainedModel

from headcount.arch.our_types import base_type
from headcount.arch.registry import architecture_of
from headcount.audit import audit_model
from headcount.audit.audited import Audit
from headcount.model.errors import HeadcountError
from headcount.running.boundary import out_of_memory_explained, quiet_transformers, third_party
from headcount.running.measured_cache import measured_cache_bytes
from headcount.running.strict_presence import strict_presence

from .masked_heads import masked
from .models import modeling_headcount
from .plan.cast import KEPT_AS_THEY_ARE
from .plan.request import HeadsOfLayers
from .plan.rounding import NO_ROUNDING, Rounding
from .plan.source import read_source

# How many tokens are read, and how many are generated, where the model has positions for them.
PROMPT, NEW = 16, 8
# |result - source| / |source| of the logits, where all merged heads were equal: rounding alone.
ROUNDING = {torch.float32: 1e-4, torch.float64: 1e-9}
# The same of a norm that was folded into a matrix, in units of the type's last place: each number
# of the matrix is off by half of one, and so is what it replaces.
_FOLDING = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """`prompt_tokens` were read. `lossless`: the logits had to be equal; `masked_heads` query heads
    of the source gave nothing. `max_difference` is the largest of the logits,
    `relative_difference` that of their Frobenius norms; `cast` is the type that the numbers of the
    source were rounded to first, as those of the result are. Of a model that generates nothing the
    last three are None. `problems` are sentences."""

    dtype: str
    lossless: bool
    masked_heads: int
    cast: str | None
    prompt_tokens: int
    max_difference: float
    relative_difference: float
    top1_agreement: float
    generated_tokens: int | None
    predicted_cache_bytes: int | None
    measured_cache_bytes: int | None
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Lengths:
    """In tokens: how many are read first, and how many are made then."""

    prompt: int
    new: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    logits: torch.Tensor
    generated: int | None
    cache_bytes: int | None
    cached_tokens: int
    encoder_tokens: int


def check_conversion(
    source: Path,
    target: Path,
    *,
    lossless: bool,
    rounding: Rounding = NO_ROUNDING,
    pruned: HeadsOfLayers | None = None,
) -> Checked:
    """Runs both models, the source without what its query heads `pruned` give. `lossless`: all
    merged heads were equal, so that the logits must be, too, but for `rounding`: the numbers of the
    source are rounded to its cast before they are run. Raises HeadcountError for a model that
    transformers cannot run."""
    with quiet_transformers(), out_of_memory_explained(), torch.no_grad():
        audit = audit_model(str(target))
        dtype = torch.float64 if audit.spec.dtype == "float64" else torch.float32
        lengths = _lengths(audit.spec.max_position_embeddings)
        before = _source_logits(source, dtype, lengths, rounding.cast, pruned or {})
        after = _run(_load(target, dtype), target, lengths)
    difference = (after.logits - before).abs()
    relative = float(difference.norm() / before.norm().clamp_min(1e-30))
    predicted = None if after.cache_bytes is None else _predicted(audit, after, dtype)
    return Checked(
        dtype=str(dtype).removeprefix("torch."),
        lossless=lossless,
        masked_heads=sum(map(len, (pruned or {}).values())),
        prompt_tokens=lengths.prompt,
        max_difference=float(difference.max()),
        relative_difference=relative,
        top1_agreement=float((after.logits.argmax(-1) == before.argmax(-1)).double().mean()),
        generated_tokens=after.generated,
        predicted_cache_bytes=predicted,
        measured_cache_bytes=after.cache_bytes,
        cast=rounding.cast,
        problems=tuple(
            _problems(after, relative, predicted, _allowed(dtype, rounding) if lossless else None)
        ),
    )


def _allowed(dtype: torch.dtype, rounding: Rounding) -> float:
    """How far the logits of equal heads may be apart, as a share of their norm."""
    folded = 0.0 if rounding.folded is None else _FOLDING * torch.finfo(_type(rounding.folded)).eps
    return max(ROUNDING[dtype], folded)


def _type(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found


def _problems(
    after: _Run, relative: float, predicted: int | None, allowed: float | None
) -> list[str]:
    """`allowed` of the logits' norm, or any difference."""
    found = []
    if not after.logits.isfinite().all():
        found.append("the result's logits are not finite")
    if allowed is not None and not relative <= allowed:
        found.append(
            f"heads that were merged were equal, but the logits differ by {relative:.1e} of their"
            " norm"
        )
    if after.cache_bytes != predicted:
        found.append(
            f"the cache holds {after.cache_bytes:,} bytes, and the audit predicts {predicted:,}"
        )
    return found


def _lengths(positions: int | None) -> _Lengths:
    """As many as have a position. The last token that is made is not read, and needs none."""
    if positions is None:
        return _Lengths(prompt=PROMPT, new=NEW)
    new = max(min(NEW, positions // 2), 1)
    return _Lengths(prompt=max(min(PROMPT, positions - new + 1), 1), new=new)


def _source_logits(
    folder: Path, dtype: torch.dtype, lengths: _Lengths, cast: str | None, pruned: HeadsOfLayers
) -> torch.Tensor:
    model = _load(folder, dtype) if cast is None else _rounded(folder, dtype, cast)
    if not pruned:
        return _logits(model, folder, lengths)[0]
    with masked(model, read_source(folder), pruned):
        return _logits(model, folder, lengths)[0]


def _run(model: PreTrainedModel, folder: Path, lengths: _Lengths) -> _Run:
    logits, inputs = _logits(model, folder, lengths)
    with third_party(f"{folder}: transformers cannot run it"):
        if model.can_generate():
            return _generate(model, inputs, logits, lengths.new)
    return _Run(logits=logits, generated=None, cache_bytes=None, cached_tokens=0, encoder_tokens=0)


def _logits(
    model: PreTrainedModel, folder: Path, lengths: _Lengths
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The logits, and what the model read for them."""
    with third_party(f"{folder}: transformers cannot run it"):
        inputs = _inputs(model, folder, lengths.prompt)
        decoder = (
            {"decoder_input_ids": _ids(model, lengths.prompt)}
            if model.config.is_encoder_decoder
            else {}
        )
        output = model(**inputs, **decoder)
        return (output.logits if "logits" in output else output[0]).double(), inputs


def _generate(
    model: PreTrainedModel, inputs: dict[str, torch.Tensor], logits: Any, new: int
) -> _Run:
    options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "num_beams": 1}
    options["use_cache"] = True  # configs of models that were trained further often say no
    made: Any = model.generate(**inputs, **options, return_dict_in_generate=True)  # type: ignore[operator]
    cache = made.past_key_values
    cross = getattr(cache, "cross_attention_cache", None)
    own = getattr(cache, "self_attention_cache", cache)
    kept = [layer.keys for layer in cross.layers] if cross is not None else []
    nbytes = sum(measured_cache_bytes(part) for part in (own, cross) if part is not None)
    return _Run(
        logits=logits,
        generated=new,
        cache_bytes=nbytes,
        cached_tokens=made.sequences.shape[1] - 1,  # the last one was made, and not read
        encoder_tokens=kept[0].shape[2] if kept else 0,
    )


def _rounded(folder: Path, dtype: torch.dtype, cast: str) -> PreTrainedModel:
    """The model with every number that a conversion casts rounded to `cast`. Those of float64 are
    rounded from that: what is rounded twice can be another number."""
    stored = audit_model(str(folder)).spec.dtype
    model = _load(folder, torch.float64 if stored == "float64" else torch.float32)
    for name, tensor in model.state_dict(keep_vars=True).items():
        if tensor.is_floating_point() and not name.endswith(KEPT_AS_THEY_ARE):
            tensor.copy_(tensor.to(_type(cast)))
    rounded: PreTrainedModel = model.to(dtype)  # type: ignore[arg-type]
    return rounded


def _load(folder: Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model as the class that its config names, of transformers or of ours."""
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with third_party(f"{folder}: transformers cannot load it"), strict_presence():
        config = AutoConfig.from_pretrained(folder, **options)
        text_type = config.get_text_config(decoder=True).model_type
        name = (config.architectures or [""])[0]
        known = getattr(transformers, name, None) or _own_class(name)
        if known is None:
            raise HeadcountError(
                f"{folder}: config.json names the class {name!r}, which transformers has not: it"
                " cannot be checked"
            )
        model, info = known.from_pretrained(
            folder,
            config=config,
            dtype=dtype,
            attn_implementation=_attention(text_type),
            use_safetensors=True,
            output_loading_info=True,
            local_files_only=True,
        )
    if info["missing_keys"]:
        raise HeadcountError(f"{folder}: the weights lack {min(info['missing_keys'])!r}")
    loaded: PreTrainedModel = model.eval()
    return loaded


def _attention(text_type: str) -> str:
    """Eager attention shows most, where it takes fewer K/V heads."""
    known = architecture_of(base_type(text_type))
    return "eager" if known is None or known.conversion.eager else "sdpa"


def _own_class(name: str) -> Any:
    try:
        return getattr(modeling_headcount, name) if name.startswith("Grouped") else None
    except AttributeError:
        return None


def _inputs(model: PreTrainedModel, folder: Path, tokens: int) -> dict[str, torch.Tensor]:
    """What the model reads first: tokens, or the features of 30 seconds of noise."""
    known = architecture_of(base_type(model.config.model_type))
    if known is not None and known.conversion.codebooks:
        raise HeadcountError(
            f"{folder}: reads codes of several codebooks at a time, which --check does not make:"
            " compare with inputs of your own"
        )
    if model.main_input_name == "input_ids":
        return {"input_ids": _ids(model, tokens)}
    if model.main_input_name == "input_features" and hasattr(model.config, "num_mel_bins"):
        length = 2 * model.config.max_source_positions
        shape = (1, model.config.num_mel_bins, length)
        noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
        return {"input_features": noise.to(model.dtype)}
    raise HeadcountError(
        f"{folder}: reads {model.main_input_name}, which --check does not make: compare with"
        " inputs of your own"
    )


def _ids(model: PreTrainedModel, tokens: int) -> torch.Tensor:
    """The same tokens for both models, without the first few, which are often special."""
    size = model.config.get_text_config(decoder=True).vocab_size
    drawn = torch.randint(
        min(4, size - 1), size, (1, tokens), generator=torch.Generator().manual_seed(0)
    )
    return drawn


def _predicted(audit: Audit, run: _Run, dtype: torch.dtype) -> int:
    return audit.spec.cache_bytes(
        tokens=run.cached_tokens,
        encoder_tokens=run.encoder_tokens,
        batch_size=1,
        bits=8 * dtype.itemsize,
    )
