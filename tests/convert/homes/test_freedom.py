"""What is said to be free is free: random changes of it leave the logits of every type as they are.

The types are those of the two sweeps (test_sweep, test_every_mha_type), run by transformers. That
proves the table of rotary layouts and the layouts of the files at once. A type that the table does
not know has keys that are not free, which is right, and worse than need be: those are listed.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from transformers.models.gemma.modeling_gemma import GemmaRMSNorm

from conversion_limits import UNCOMPARED
from every_type import MAPPINGS, whole_jobs
from grouped_models import NOT_ON_TEXT, NotBuildableError, build_pair, load, precision
from grouped_models import logits as logits_of
from headcount.convert.attention_map.attention_tensors import Where
from headcount.convert.families import convertible
from headcount.convert.merge.freedom import Freedom
from headcount.convert.plan.source import read_source
from headcount.convert.rewrite.freedom import alone, freedoms_of, limits_of
from mha_types import logits, settle, tiny_model
from turned import turned_model, widened

pytestmark = pytest.mark.needs_convert

LIMIT = 1e-9
# Classes that compute norms or rotations in float32 whatever the weights are. What is not free
# moves the logits by 0.02 and more.
ROUNDED = 1e-4
NATIVE = {row.model_type for row in convertible() if row.home == "native"}
OWN = {row.model_type for row in convertible() if row.home == "custom"}
OWN_JOBS = [(task, t) for task in ("causal", "seq2seq") for t in MAPPINGS[task] if t in OWN]
FLOAT32 = ("prophetnet", "xglm")  # whatever the weights are
PARTS_IN_FLOAT32 = ("codegen", "gpt_neo", "gptj", "modernbert-decoder")  # rotations, or scores
# With the reason why its keys are not free, or it is not run.
UNKNOWN = {"mimo_v2_flash": "kinds of layers rotate other shares of a head"}
NOT_COMPARED = {
    "diffusion_gemma": "it draws random numbers",
    "shieldgemma2": "transformers does not load what it saves",
    **dict.fromkeys(NOT_ON_TEXT, "it does not run on text alone"),
}
# With which an even number of rows of its heads rotates.
SIZES = {"bamba": {"hidden_size": 64}}


def check_known(model_type: str, source: Path) -> None:
    """The table has the type, unless something else is in the way of its keys for good."""
    model = read_source(source)
    reasons = {limits.keys for limits in limits_of(model).values()}
    unknown = any(reason is not None and "not known which rows" in reason for reason in reasons)
    assert unknown is (model_type in UNKNOWN)


def turn_native(model_type: str, task: str, folder: Path) -> dict[str, int]:
    pair = build_pair(model_type, task, folder / "models", **SIZES.get(model_type, {}))
    source = widened(pair.grouped)
    check_known(model_type, source)
    free = turned_model(source, folder / "turned")
    dtype = precision(model_type)
    before = logits_of(load(pair, source), dtype)
    difference = (logits_of(load(pair, folder / "turned"), dtype) - before).abs().max()
    assert difference.item() <= ROUNDED
    return free


def turn_own(model_type: str, task: str, folder: Path, **more: int) -> dict[str, int]:
    dtype = torch.float32 if model_type in FLOAT32 else torch.float64
    model = tiny_model(model_type, task, dtype=dtype, **more)
    model.save_pretrained(folder / "source")
    check_known(model_type, folder / "source")
    free = turned_model(folder / "source", folder / "turned")
    before, after = (logits(_load(model, folder / name)) for name in ("source", "turned"))
    rounded = model_type in (*FLOAT32, *PARTS_IN_FLOAT32)
    assert (after - before).abs().max().item() <= (ROUNDED if rounded else LIMIT)
    return free


def _load(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    options = {"dtype": model.dtype, "attn_implementation": "eager"}
    loaded: PreTrainedModel = type(model).from_pretrained(folder, **options)
    settle(loaded)
    for module in loaded.modules():
        if isinstance(module, GemmaRMSNorm):
            module.forward = partial(_norm_as_precise_as_its_input, module)
    return loaded.eval()


def _norm_as_precise_as_its_input(norm: GemmaRMSNorm, states: torch.Tensor) -> torch.Tensor:
    """Gemma's own is in float32, and the last bits of its scores decide how that is rounded."""
    normed: torch.Tensor = norm._norm(states)
    return normed * (1.0 + norm.weight)


SAMPLE = {
    "llama": "kvo",
    "cohere": "kvo",
    "glm": "kvo",
    "phi3": "kvo",
    "qwen3": "vo",
    "stablelm": "vo",
    "falcon": "kvo",
    "gemma4_text": "o",
    "qwen3_5_text": "o",
    "gpt_oss": "kvo",
}
OWN_SAMPLE = {
    ("causal", "gpt2"): "kvo",
    ("causal", "bloom"): "kv",
    ("causal", "gpt_neox"): "kvo",
    ("causal", "codegen"): "kvo",
    ("causal", "gptj"): "kvo",
    ("seq2seq", "t5"): "kvo",
    ("seq2seq", "bart"): "kvo",
}


def _letters(free: dict[str, int]) -> str:
    return "".join(name[0] for name in ("keys", "values", "order") if free[name])


@pytest.mark.parametrize("model_type", SAMPLE)
def test_what_is_free_changes_nothing(model_type: str, tmp_path: Path) -> None:
    task = next(task for known, task in whole_jobs() if known == model_type)
    assert _letters(turn_native(model_type, task, tmp_path)) == SAMPLE[model_type]


@pytest.mark.parametrize(("task", "model_type"), OWN_SAMPLE)
def test_what_is_free_changes_nothing_in_a_class_without_groups(
    task: str, model_type: str, tmp_path: Path
) -> None:
    assert _letters(turn_own(model_type, task, tmp_path)) == OWN_SAMPLE[task, model_type]


SHARED_TABLE = {"t5", "mt5", "longt5", "switch_transformers"}
TABLES = [*sorted(SHARED_TABLE), "umt5"]


@pytest.mark.parametrize("model_type", TABLES)
def test_heads_change_places_with_their_columns_of_a_table(model_type: str, tmp_path: Path) -> None:
    """All self-attentions that read one table of score biases, together; and each by itself where
    every layer has its own. What moves alone gives other logits."""
    free = turn_own(model_type, "seq2seq", tmp_path, num_decoder_layers=3)
    model = read_source(tmp_path / "source")
    tensors = model.attention_map.attentions
    assert free["order"] == len(tensors) == 6
    sets = {where: f.order_set for where, f in freedoms_of(model).items()}
    of_layer_0 = 0 if model_type in SHARED_TABLE else None
    assert sets == {(layer, cross): None if cross else of_layer_0 for layer, cross in tensors}
    single = {where: alone(f).order for where, f in freedoms_of(model).items()}
    assert single == {(layer, cross): cross or of_layer_0 is None for layer, cross in tensors}


def test_heads_of_one_layer_alone_give_another_function(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def each_by_itself(*args: Any) -> dict[Where, Freedom]:
        return {w: replace(f, order_set=None) for w, f in freedoms_of(*args).items()}

    monkeypatch.setattr("turned.freedoms_of", each_by_itself)
    with pytest.raises(AssertionError, match="assert 0"):
        turn_own("t5", "seq2seq", tmp_path)
    turn_own("umt5", "seq2seq", tmp_path / "umt5")


@pytest.mark.slow
@pytest.mark.parametrize(("model_type", "task"), [job for job in whole_jobs() if job[0] in NATIVE])
def test_every_native_type(model_type: str, task: str, tmp_path: Path) -> None:
    if model_type in NOT_COMPARED:
        return
    try:
        turn_native(model_type, task, tmp_path)
    except NotBuildableError:
        assert model_type in UNCOMPARED


@pytest.mark.slow
@pytest.mark.parametrize(("task", "model_type"), OWN_JOBS)
def test_every_type_of_ours(task: str, model_type: str, tmp_path: Path) -> None:
    turn_own(model_type, task, tmp_path)
