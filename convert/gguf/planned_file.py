"""The GGUF file that a conversion makes, planned: every check that needs no tensor is made here."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from headcount.arch.engine_types import gguf_architecture
from headcount.arch.gguf.spec import gguf_spec
from headcount.arch.gguf.written import WRITTEN, Written
from headcount.audit.audited import Audit
from headcount.model.mixers import Attention, LatentAttention
from headcount.model.spec import ModelSpec
from headcount.running.boundary import quiet_transformers, third_party

from ..attention_map.mapping import attention_map
from ..plan.errors import CannotConvertError, SelfCheckError
from ..plan.request import Q8_0, ElementType
from ..plan.steps import Step
from .gguf_file import GgufFile, GgufTensor, KeyValue
from .keys import approximations, check_computed, context_of, general_keys, model_keys
from .latent import check_latent_file, latent_keys, latent_notes
from .output_audit import output_audit
from .rotation import rotation_of, rotation_tensors
from .tensors import EMBEDDING, Model, dropped_notes, laid_out
from .vocabulary import vocabulary_of


def planned_file(
    steps: Sequence[Step],
    config: Mapping[str, Any],
    dtype: ElementType | None,
    *,
    folder: Path,
    name: str,
) -> GgufFile:
    """The file of the model that `steps` make and `config` describes; its tokenizer lies in
    `folder`, and `name` is what the file calls it. Raises CannotConvertError."""
    written = _written(config, name)
    audit = output_audit(steps, config, name)
    settings = _settings(config, name)
    check_computed(written, settings, name)
    if written.latent:
        check_latent_file(settings, name)
    _check_width(written, audit)
    first = _first(audit.spec)
    latent = first if isinstance(first, LatentAttention) else None
    turning = first.head_dim if latent is None else latent.qk_rope_head_dim
    rotation = rotation_of(settings, turning, context_of(audit, settings), name)
    model = Model(
        written=written,
        attention_map=attention_map(audit),
        layers=len(audit.spec.layers),
        tied=bool(audit.spec.tie_word_embeddings),
        rotary=audit.architecture.rotary or written.class_rotary,
        rotated=0 if rotation is None else rotation.rotated,
        latent=latent,
        dtype=dtype,
        label=name,
    )
    _check_rotary(model)
    tensors, dropped = laid_out(steps, model)
    tables = () if rotation is None else tuple(rotation_tensors(rotation))
    by_name = {tensor.name: tensor for tensor in tensors}
    vocabulary = vocabulary_of(folder, by_name[EMBEDDING].shape[0])
    keys = (
        *model_keys(written, audit, settings, by_name, rotation),
        *(() if latent is None else latent_keys(written.architecture, latent, settings)),
    )
    metadata = (*general_keys(written.architecture, name, tensors), *keys, *vocabulary.keys)
    return GgufFile(
        architecture=written.architecture,
        metadata=metadata,
        tensors=(*tables, *tensors),
        notes=(
            *vocabulary.notes,
            *approximations(written, settings),
            *_windows_lost(audit.spec, metadata, name),
            *_unquantised(tensors, dtype),
            *(() if latent is None else latent_notes(tensors)),
            *dropped_notes(dropped),
        ),
    )


def _written(config: Mapping[str, Any], name: str) -> Written:
    """How the type of `config` is written. Raises CannotConvertError."""
    model_type = str(config.get("model_type"))
    architecture = gguf_architecture(model_type)
    if architecture is None:
        raise CannotConvertError(
            f"{name}: llama.cpp has no architecture for {model_type}: convert without --format"
            " gguf, for transformers and other engines"
        )
    if architecture not in WRITTEN:
        raise CannotConvertError(
            f"{name}: GGUF files of {model_type} ({architecture}) are not written here, but of"
            f" {', '.join(sorted(WRITTEN))}: convert without --format gguf, and let llama.cpp's own"
            " convert_hf_to_gguf.py read the result"
        )
    return WRITTEN[architecture]


def _settings(config: Mapping[str, Any], name: str) -> Any:
    """The config with all that its class adds."""
    with third_party(f"{name}: transformers cannot read the config"), quiet_transformers():
        return CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))


def _first(spec: ModelSpec) -> Attention | LatentAttention:
    mixers = (mixer for layer in spec.layers for mixer in layer.mixers)
    found = next((m for m in mixers if isinstance(m, Attention | LatentAttention)), None)
    if found is None:
        raise CannotConvertError("a model without attention has no heads to write")
    return found


def _check_width(written: Written, audit: Audit) -> None:
    first = _first(audit.spec)
    wide = first.num_attention_heads * first.head_dim
    if written.whole_width and wide != audit.spec.hidden_size:
        raise CannotConvertError(
            f"{audit.source.id}: {first.num_attention_heads} heads of {first.head_dim} are not"
            f" hidden_size {audit.spec.hidden_size}, which llama.cpp's {written.architecture} takes"
            " for granted; convert without --format gguf"
        )


def _check_rotary(model: Model) -> None:
    """Raises CannotConvertError where rows cannot be put as llama.cpp turns them."""
    wanted, is_so = model.written.rotary, model.rotary
    if wanted == is_so or model.in_pairs or not model.rotated:
        return
    raise CannotConvertError(
        f"{model.label}: llama.cpp turns {wanted} of a head, and this class {is_so or 'others'};"
        " convert without --format gguf"
    )


def _windows_lost(spec: ModelSpec, metadata: Sequence[KeyValue], name: str) -> Iterator[str]:
    """What llama.cpp will not see of the layers' windows, by the key-values as an audit reads them.
    Raises SelfCheckError where these say other heads, another cache, or windows that are none."""
    read = gguf_spec({one.key: _as_read(one) for one in metadata}, name)
    lost = []
    for layer, found in zip(spec.layers, read.layers, strict=True):
        wanted, got = layer.mixers[0], found.mixers[0]
        assert isinstance(wanted, Attention | LatentAttention) and type(got) is type(wanted)
        heads = [(m.num_attention_heads, m.num_key_value_heads, m.head_dim) for m in (wanted, got)]
        kept = [m.key_value_elements(1, engine="serving") for m in (wanted, got)]
        if heads[0] != heads[1] or kept[0] != kept[1] or got.window not in (None, wanted.window):
            raise SelfCheckError(f"{name}: layer {layer.index} would be read as {got}")
        if wanted.window != got.window:
            lost.append(layer.index)
    if lost:
        yield (
            f"llama.cpp gives no window to {len(lost)} layers that have one: texts longer than the"
            " window get other results than from transformers, and take a larger cache"
        )


def _as_read(one: KeyValue) -> Any:
    return tuple(one.value) if one.kind.startswith("[") else one.value


def _unquantised(tensors: Sequence[GgufTensor], dtype: ElementType | None) -> Iterator[str]:
    narrow = [tensor.name for tensor in tensors if dtype == Q8_0 and tensor.type == "F16"]
    if narrow:
        yield (
            f"{len(narrow)} matrices have rows of no whole blocks of 32 and are float16, not Q8_0"
            f" ({narrow[0]} …)"
        )
