"""What a draft puts on the device beside the model: its weights and its layers' caches.

A draft model is whole. A head of EAGLE has a layer or more of its own, a matrix that joins the
hidden states that it reads, and a head over its own vocabulary; embedding, and head where it has
none, are the model's (vllm/model_executor/models/llama_eagle.py and llama_eagle3.py,
sglang/srt/models/llama_eagle.py and llama_eagle3.py). A draft of DFlash is as a head of EAGLE-3,
whose first layer reads nothing beside (qwen3_dflash.py); one of DSpark has two tables over tokens
more (qwen3_dspark.py). Medusa's are heads alone (medusa.py). Layers that predict further tokens
(MTP) are those of the model's own files, with its embedding and head.
"""

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from headcount.arch.modules.module import Module
from headcount.arch.modules.of_models import inventory_of
from headcount.arch.modules.prediction import predicted
from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError, InvalidConfigError, UnsupportedModelError
from headcount.model.numbers import size as size_of

from ...budget import Term
from ...options.speculation import Speculation
from ...parallel import replicated_parameters
from ...planned_model import PlannedModel
from ...request import Workload
from ...stage_bytes import weighed_as_planned
from ...weights import plan_weights, rank_weights
from .spread import Spread

# Hidden states of the model that a head of EAGLE-3 reads: of a low, a middle and a high layer.
_EAGLE3_STATES = 3
_ROWS = 64  # vocabularies are padded to multiples of it
_HEAD_ERROR = 0.02  # norms and tables of tokens that are not counted
# Of configs that name no rule of their own: how many layers predict.
_PREDICTING = (
    *("num_nextn_predict_layers", "mtp_num_hidden_layers", "mtp_num_layers", "num_mtp_layers"),
)


def draft_weights(
    model: PlannedModel,
    work: Workload,
    draft: Speculation,
    spread: Spread,
    *,
    keeps_head_copies: bool = False,
) -> Term | None:
    """On a rank of the last stage; None where nothing but the model's own weights drafts.
    `keeps_head_copies`: each layer of MTP whose files have an output head of its own keeps it.
    Raises HeadcountError where a draft's weights are not known."""
    if draft.method == "mtp":
        return _prediction(model, work, spread, keeps_head_copies)
    if draft.draft is None:
        return None
    return _TERMS.get(draft.method, _eagle)(draft.draft, work, draft)


def _term(*, bytes: int, formula: str, error_bytes: int) -> Term:
    return Term(
        key="draft",
        title="Draft",
        bytes=bytes,
        formula=formula,
        source="the draft's config",
        error_bytes=error_bytes,
    )


def _draft_model(draft: PlannedModel, work: Workload, speculation: Speculation) -> Term:
    weights = plan_weights(draft, None, work.compute_dtype, with_prediction=False)
    size, formula = rank_weights(draft, weights, work.request.tp)
    error = 0.003 if weights.source == "headers" else 0.015
    return _term(bytes=size, formula=f"{draft.model_id}: {formula}", error_bytes=ceil(size * error))


def _eagle(draft: PlannedModel, work: Workload, speculation: Speculation) -> Term:
    """As stored where files are at hand, which hold the layers, the joining matrix and the head;
    else by the config. The joining matrix is whole on every rank."""
    tp, each = work.request.tp, Fraction(work.compute_bits, 8)
    hidden = draft.spec.hidden_size
    states = states_read(draft, speculation.method)
    joined = states * hidden * hidden
    split = _eagle_parameters(draft, doubled=speculation.method == "eagle3")
    split += _own_head(draft.config) * hidden
    if speculation.method == "dspark":
        joined += _markov(draft)
    size = ceil((split / tp + joined) * each)
    words = (
        f"({split:,} / {tp} + {joined:,}) parameters"
        if tp > 1
        else f"{split + joined:,} parameters"
    )
    return _term(
        bytes=size,
        formula=f"{draft.model_id}: {words} x {work.compute_bits} bit",
        error_bytes=ceil(size * _HEAD_ERROR),
    )


def _medusa(draft: PlannedModel, work: Workload, speculation: Speculation) -> Term:
    """Each head has square matrices, which are whole on every rank, and rows of the vocabulary, cut
    like the model's; with `original_lm_head` all have one (medusa.py)."""
    config, hidden, tp = draft.config, draft.spec.hidden_size, work.request.tp
    heads, layers = config["num_heads"], config["num_hidden_layers"]
    vocabulary = draft.spec.vocab_size or 0
    one = bool(config.get("original_lm_head"))
    rows = (size_of(config.get("truncated_vocab_size")) or vocabulary) if one else vocabulary
    whole = heads * layers * hidden * (hidden + bool(config.get("medusa_fc_bias")))
    split = (1 if one else heads) * (rows + -rows % _ROWS) * hidden
    size = ceil((whole + Fraction(split, tp)) * Fraction(work.compute_bits, 8))
    words = f"({split:,} / {tp} + {whole:,})" if tp > 1 else f"{split + whole:,}"
    return _term(
        bytes=size,
        formula=f"{draft.model_id}: {words} parameters x {work.compute_bits} bit",
        error_bytes=ceil(size * _HEAD_ERROR),
    )


_TERMS = {"draft_model": _draft_model, "medusa": _medusa}


def _markov(draft: PlannedModel) -> int:
    """What is whole on every rank: a table over the last token and one over the next, and the
    confidence head, whose float32 counts twice (qwen3_dspark.py). Raises HeadcountError for another
    class than Qwen3's."""
    config = draft.config
    rank = size_of(config.get("markov_rank"))
    vocabulary = size_of(config.get("vocab_size"))
    if rank is None or vocabulary is None:
        raise HeadcountError(
            f"{draft.model_id}: a draft of DSpark with a markov_rank and layers of its own is"
            " meant; DSpark stages inside a model's own files (DeepSeek-V4) were not weighed"
        )
    with_markov = bool(config.get("confidence_head_with_markov"))
    confidence = draft.spec.hidden_size + with_markov * rank + 1
    own = confidence * 2 if config.get("enable_confidence_head") else 0
    return rank * (vocabulary + (_own_head(config) or vocabulary)) + own


def states_read(draft: PlannedModel, method: str) -> int:
    """Hidden states of the model that are joined (LlamaModel of llama_eagle3.py,
    _get_dflash_fc_input_size of qwen3_dflash.py); of EAGLE one, and the token's embedding."""
    config = draft.config
    if method == "eagle":
        return 2
    if method in ("dflash", "dspark"):
        flash = config.get("dflash_config")
        layers = flash.get("target_layer_ids") if isinstance(flash, Mapping) else None
        return len(layers) if isinstance(layers, list) and layers else len(draft.spec.layers)
    named = config.get("eagle_config")
    layers = named.get("eagle_aux_hidden_state_layer_ids") if isinstance(named, Mapping) else None
    count = size_of(config.get("num_aux_hidden_states"))
    return count or (len(layers) if isinstance(layers, list) and layers else _EAGLE3_STATES)


def _own_head(config: Mapping[str, Any]) -> int:
    """Rows of a head over tokens that the draft alone has; 0 where the model's serves."""
    return size_of(config.get("draft_vocab_size")) or 0


def _eagle_parameters(draft: PlannedModel, *, doubled: bool) -> int:
    """Those of its layers. `doubled`: what reads the hidden state in the first layer reads an
    embedding beside it."""
    modules = [module for module in _layer_modules(draft) if module.layer is not None]
    extra = sum(m.parameters for m in modules if m.layer == 0 and _reads(m)) if doubled else 0
    return sum(module.parameters for module in modules) + extra


def _reads(module: Module) -> bool:
    return module.kind == "attention" and module.part in ("q", "k", "v", "qkv")


@lru_cache(maxsize=16)
def _layer_modules(draft: PlannedModel) -> tuple[Module, ...]:
    """By the config alone, as its class is no class of transformers."""
    plain = {name: value for name, value in draft.config.items() if name != "architectures"}
    found = inventory_of(read_config(plain, draft.model_id))
    if found is None:
        raise HeadcountError(
            f"{draft.model_id}: its config does not tell what the draft's layers weigh"
        )
    return found.modules


def _prediction(
    model: PlannedModel, work: Workload, spread: Spread, keeps_head_copies: bool
) -> Term:
    """Experts as the spread has them. What joins a token and a hidden state is whole on every rank
    where files hold an embedding and a head for each layer, as DeepSeek's do (deepseek_mtp.py), and
    split in others (qwen3_next_mtp.py, nemotron_h_mtp.py)."""
    if model.prediction_parameters:
        return _built_prediction(model, work, spread)
    found = weighed_as_planned(model, work)
    if found is None or not found.prediction:
        raise HeadcountError(
            f"{model.model_id}: its config names no layers that predict further tokens, or what"
            " they weigh is not known: what mtp takes cannot be told"
        )
    each = Fraction(1, spread.tp)
    parts = dict(spread.parts)
    if any(module.kind == "embedding" for module, _ in found.prediction):
        parts["other"] = Fraction(1)
    size = sum(
        size * parts.get(module.kind, each)
        for module, size in found.prediction
        if module.kind != "embedding" or (keeps_head_copies and module.part == "head")
    )
    size += _replicated(model, work, spread.tp) * prediction_layers(model)
    return _term(
        bytes=ceil(size),
        formula=f"{prediction_layers(model)} of its layers that predict further tokens",
        error_bytes=ceil(0.02 * size),
    )


def _built_prediction(model: PlannedModel, work: Workload, spread: Spread) -> Term:
    """Of layers that the model's class builds with it (mimo_mtp.py)."""
    count, each = model.prediction_parameters, Fraction(work.compute_bits, 8)
    extra = _replicated(model, work, spread.tp)
    split = f" / {spread.tp}" if spread.tp > 1 else ""
    return _term(
        bytes=ceil(count * each / spread.tp + extra),
        formula=f"{count:,} parameters of layers that predict further tokens x"
        f" {work.compute_bits} bit{split}",
        error_bytes=ceil(_HEAD_ERROR * count * each / spread.tp),
    )


def _replicated(model: PlannedModel, work: Workload, tp: int) -> Fraction:
    """Bytes of a layer's latents, or K/V heads, that a rank holds beyond its share."""
    each = work.weights.per_attention_parameter if work.weights else Fraction(2)
    extra = replicated_parameters(model.spec, tp) * each / len(model.spec.layers)
    return extra / tp


def prediction_layers(model: PlannedModel) -> int:
    """How many layers predict further tokens; 0 where the config names none."""
    try:
        counted = predicted(read_config(model.config, model.model_id))
    except (InvalidConfigError, UnsupportedModelError):
        counted = 0
    texts = (model.config, model.config.get("text_config"))
    holders = [text for text in texts if isinstance(text, Mapping)]
    named = (size_of(text.get(key)) or 0 for text in holders for key in _PREDICTING)
    return max(counted, *named, 0)
