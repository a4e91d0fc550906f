"""A tiny decoder of every type that transformers builds, by itself or behind an encoder."""

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from headcount.heads.patterns import run_for_patterns
from state_configs import TYPES as STATE_TYPES
from state_configs import state_config
from states_truth import build as build_state
from states_truth import written
from tiny_truth import class_of, read
from truth_record import recorded

TOKENS = 23
STATES = "states"
_FILES = {"causal": "decoders", "seq2seq": "encoder_decoders", "image_text": "multimodal"}
# Why there are no patterns of them, as the first words of it are.
_NO_HEADS = "has no attention in its decoder"
_NOT_ON_TEXT = "transformers cannot run the model"
_OTHER_COUNT = "returns [0-9]+ attention patterns"
REFUSED = {
    # encoders, whose causal classes attend both ways unless a flag says otherwise
    **dict.fromkeys(("big_bird", "camembert", "electra", "megatron-bert", "rembert"), _NO_HEADS),
    **dict.fromkeys(("roberta", "xmod"), _NO_HEADS),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), _NO_HEADS),
    # they want audio, images, states of a robot, or the cache of another model
    **dict.fromkeys(("gemma4_assistant", "gemma4_unified_assistant", "idefics"), _NOT_ON_TEXT),
    **dict.fromkeys(("musicgen", "musicgen_melody", "speech_to_text", "pi0"), _NOT_ON_TEXT),
    **dict.fromkeys(("t5gemma2", "voxtral_realtime", "udop"), _NOT_ON_TEXT),
    "kyutai_speech_to_text": "Padding_idx must be within",
    # attention over n-grams, bytes and patches, two streams, buckets, or not returned at all
    **dict.fromkeys(("prophetnet/encoder_decoders", "blt", "xlnet"), _OTHER_COUNT),
    **dict.fromkeys(("reformer", "cpmant"), _OTHER_COUNT),
    **dict.fromkeys(("pix2struct", "pp_formulanet"), _OTHER_COUNT),
    "deepseek_v4": "scores are over compressed blocks",
}


class Decoder(NamedTuple):
    """A model with eager attention, the config that it has, and what it is called with."""

    model: Any
    config: dict[str, Any]
    inputs: dict[str, torch.Tensor]


def jobs() -> Iterator[tuple[str, str]]:
    """Every type, and the file of the record, or the list of configs, that has it."""
    for file in _FILES.values():
        yield from dict.fromkeys((line["model_type"], file) for line in recorded(file))
    yield from ((name, STATES) for name in STATE_TYPES)


def tiny_decoder(model_type: str, file: str) -> Decoder:
    """The model of the first config that transformers builds; raises what it raises."""
    errors: list[Exception] = []
    for number in range(4):
        try:
            if file == STATES:
                return _state(model_type, number)
            return _of_record(model_type, file, number)
        except IndexError:
            break
        except Exception as error:
            errors.append(error)
    raise errors[0]


def _state(model_type: str, number: int) -> Decoder:
    model = build_state(state_config(model_type, number), torch.float32)
    model.set_attn_implementation("eager")
    return Decoder(model, written(model), _inputs(model))


def _of_record(model_type: str, file: str, number: int) -> Decoder:
    lines = [line for line in recorded(file) if line["model_type"] == model_type]
    saved = [line for line in lines if line["written"] == "saved"]
    line = saved[number]
    task = next(task for task, name in _FILES.items() if name == file)
    config = read(line["config"])
    if file != "encoder_decoders":
        config = config.get_text_config(decoder=True)
    if (getattr(config, "pad_token_id", None) or 0) >= getattr(config, "vocab_size", 0):
        config.pad_token_id = 0
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = class_of(config, task)(config).eval()
    return Decoder(model, line["config"], _inputs(model))


def _inputs(model: Any) -> dict[str, torch.Tensor]:
    ids = torch.randint(3, 29, (2, TOKENS), generator=torch.Generator().manual_seed(0))
    if not model.config.is_encoder_decoder:
        return {"input_ids": ids}
    return {"input_ids": ids[:, :9], "decoder_input_ids": ids}


def patterns(decoder: Decoder) -> list[torch.Tensor]:
    """Those that were taken, [B, H, T, S] each; no two of them are in the model's memory."""
    found: list[torch.Tensor] = []
    alive: list[weakref.ref[torch.Tensor]] = []

    def take(path: str, pattern: torch.Tensor) -> None:
        assert not any(one() is not None for one in alive), f"{path}: an earlier one is kept"
        alive.append(weakref.ref(pattern))
        found.append(pattern.clone())

    run_for_patterns(decoder.model, take, queries=TOKENS, **decoder.inputs)
    return found


def returned(decoder: Decoder) -> list[torch.Tensor]:
    """What transformers returns for output_attentions, layer by layer, self before cross."""
    with torch.no_grad():
        output = decoder.model(**decoder.inputs, use_cache=False, output_attentions=True)
    if not decoder.model.config.is_encoder_decoder:
        return [one for one in output.attentions if one is not None]
    cross = output.cross_attentions
    pairs = zip(output.decoder_attentions, cross, strict=True)
    return [one for pair in pairs for one in pair]
