"""The command that starts an engine as planned: what it serves, and what has to be there first.

A command never starts something else than was planned. Weights that no engine makes while it loads
have a placeholder for a name, which starts nothing until it is filled in.
"""

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from shlex import quote

from headcount.arch.body.body import Body
from headcount.arch.engine_types import engines_with, pooling_engines
from headcount.arch.formats.of_configs import quantization_config
from headcount.arch.our_types import is_latent
from headcount.arch.registry import architecture_of
from headcount.model.dtypes import BITS

from ..gguf_names import mix_name
from ..planned_model import PlannedModel
from ..request import Workload
from ..stored import full_name, stored_as

# What makes checkpoints of a format, for those that ask.
_MAKERS = {
    **{"int4": "llm-compressor's W4A16", "int8": "llm-compressor's W8A8"},
    **{"awq": "llm-compressor's AWQ", "gptq": "GPTQModel"},
    **dict.fromkeys(
        ("nvfp4", "mxfp4", "mxfp8", "float8_e4m3fn"), "llm-compressor, Model Optimizer"
    ),
    "nf4": "transformers' save_pretrained with bitsandbytes",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """`command` is a line for a shell, or for Python of a library; None where none starts what was
    planned. `notes` say why, or what has to be there first, or what is otherwise, each in a
    sentence; `refusals` why the engine would not start so at all, whatever is there."""

    command: str | None
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def noting(self, note: str | None) -> "Launch":
        """With one more, if there is one."""
        return replace(self, notes=(*self.notes, note)) if note else self


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    """What a command serves: `name`, quoted for a shell, and `words`, the options that make of it
    what was planned. Nothing can be served so where `name` is None, and `refusals` say why, which
    like `notes` are those of `Launch`."""

    name: str | None
    words: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()


def option(name: str, value: int | None, default: int | None = None) -> Iterator[str]:
    """`name value` of a launch command, unless it is what the engine takes anyway."""
    if value is not None and value != default:
        yield f"{name} {value}"


def served(
    model: PlannedModel,
    dtype: str | None,
    *,
    engine: str,
    on_loading: Mapping[str, str],
    unknown: Container[str] = (),
) -> Served:
    """The model with weights of `dtype` (None: as they are stored) under its own name, where its
    files are stored so or `engine` makes them so while it loads them; else a placeholder.
    `on_loading` are the options that do that, by full names of dtypes, of 16 bit and more too;
    `unknown` formats that it does not load from files either."""
    full = full_name(dtype) if dtype else None
    own = own_format(model)
    if full in unknown or (own is not None and stored_as(own) in unknown and full is None):
        reason = f"{engine} loads no weights of {dtype or stored_as(own or {})}"
        return Served(name=None, refusals=(reason,))
    if full is None or (own is not None and stored_as(own) == full):
        return _by_name(model)
    if own is None and full in on_loading:
        words = on_loading[full]
        return _by_name(model, *([words] if words else []))
    why = f"{engine} quantises no weights to {dtype} while it loads them"
    return _checkpoint(model, str(dtype), f"{model.model_id} is stored quantised" if own else why)


def _checkpoint(model: PlannedModel, dtype: str, why: str) -> Served:
    """A placeholder for one of the format that was asked for."""
    full = full_name(dtype)
    stored = "16 bit" if BITS.get(full, 0) >= 16 else dtype
    place = f"<your {stored} checkpoint of {model.model_id}>"
    maker = f" ({_MAKERS[full]} makes them)" if full in _MAKERS else ""
    note = f"{why}: put the name of a checkpoint that is stored so{maker} for {place}."
    return Served(name=quote(place), notes=(note,))


def _by_name(model: PlannedModel, *words: str) -> Served:
    """The model as it is called, where that is a folder or a repository: engines start no file of
    one, which may be its config alone."""
    name = model.model_id
    if name != _STANDARD_INPUT and not name.lower().endswith(_OF_A_FOLDER):
        return Served(name=quote(name), words=words)
    what = "standard input" if name == _STANDARD_INPUT else name
    place = f"<the folder or repository of {what}>"
    note = f"{what} is no model to start: put the name of its folder or repository for {place}."
    return Served(name=quote(place), words=words, notes=(note,))


_STANDARD_INPUT, _OF_A_FOLDER = "-", (".json", ".safetensors", ".bin", ".pt", ".pth")


def gguf_file(model: PlannedModel, mix: str | None, *words: str) -> Served:
    """The file itself, or a placeholder for one of the mix that was asked for, or planned."""
    if is_gguf(model) and mix is None:
        return _own_file(model, *words)
    place = f"<your {mix} GGUF file of {model.model_id}>"
    note = (
        f"A GGUF file has to be named for {place}: convert_hf_to_gguf.py of llama.cpp makes one of"
        " a checkpoint, and llama-quantize one with fewer bits."
    )
    return Served(name=quote(place), words=words, notes=(note,))


def _own_file(model: PlannedModel, *words: str) -> Served:
    """One of the Hub has to be fetched first, but for llama.cpp."""
    name = model.model_id
    if not model.on_hub:
        return Served(name=quote(name), words=words)
    place = f"<your copy of {name}>"
    organisation, repository, file = name.split("/", 2)
    note = (
        f"{name} lies on the Hub: put where its copy lies for {place}; llama.cpp fetches it with"
        f" -hf {quote(f'{organisation}/{repository}')} --hf-file {quote(file)} in place of -m."
    )
    return Served(name=quote(place), words=words, notes=(note,))


def wants_gguf(model: PlannedModel, dtype: str | None) -> bool:
    """Whether the weights lie in a GGUF file, or are planned as one of llama.cpp's mixes."""
    return is_gguf(model) or (dtype is not None and mix_name(dtype) == full_name(dtype))


def is_gguf(model: PlannedModel) -> bool:
    """Whether it is a file of llama.cpp's."""
    return model.model_id.lower().endswith(".gguf")


def own_format(model: PlannedModel) -> Mapping[str, object] | None:
    """How the model's own files are quantised; its config may be that of a format asked for."""
    if model.own_format is not None:
        return model.own_format or None
    return quantization_config(model.config)


def unlisted(engine: str | None, model_type: str | None) -> str | None:
    """That the engine's list of classes, of the version that was read, has none for a type."""
    if engine is None or model_type is None or architecture_of(model_type) is None:
        return None
    if engine in engines_with(model_type):
        return None
    if engine in pooling_engines(model_type):
        return (
            f"{engine} serves model_type {model_type!r} for pooling alone: it embeds, classifies or"
            " scores, and generates nothing."
        )
    return f"{engine} lists no class for model_type {model_type!r}: it may not start."


def not_loaded(engine: str, model: PlannedModel) -> str | None:
    """Why an engine other than transformers does not load one of our classes that keeps latents;
    None for any other model."""
    if engine in ("generic", "transformers") or not is_latent(model.spec.model_type or ""):
        return None
    return "a modelling file of ours, for transformers, rebuilds keys and values from its latents"


def beyond_positions(model: PlannedModel, work: Workload) -> str | None:
    """Why no engine runs a context beyond a learned table of positions; None where there is none,
    or the context is within it."""
    most, known = beyond_maximum(model, work), architecture_of(model.spec.model_type or "")
    body = known.body if known else None
    if most is None or not isinstance(body, Body) or not body.positions:
        return None
    return f"the model has learned {most:,} positions: no engine runs it with a longer context"


def beyond_maximum(model: PlannedModel, work: Workload) -> int | None:
    """The model's longest context, where the plan's is longer."""
    most = model.spec.max_position_embeddings
    return most if most is not None and work.context > most else None
