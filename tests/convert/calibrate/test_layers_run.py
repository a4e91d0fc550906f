"""The source's layers one at a time, against the whole model as transformers runs it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from calibrated_models import CONFIGS, VOCABULARY
from headcount.convert.calibrate.attention_place import attention_place
from headcount.convert.calibrate.layer_calls import record
from headcount.convert.calibrate.layer_hooks import watching
from headcount.convert.calibrate.layered_model import LayeredModel
from headcount.convert.calibrate.moment_sums import MomentSums
from headcount.convert.calibrate.output_uses import OutputUse, last_projection, use_of_attention
from headcount.convert.calibrate.state_rows import new_rows
from headcount.convert.plan.source import read_source
from headcount.convert.rewrite.tensors import weights_of
from headcount.convert.stream.reader import SourceReader

pytestmark = pytest.mark.needs_convert
MakeModel = Callable[..., Path]
BATCHES = (slice(0, 2), slice(2, 4))
IDS = torch.randint(1, VOCABULARY, (4, 32), generator=torch.Generator().manual_seed(3))
# Where the attention's output is added, times what; the MLP's last projection.
USES = {
    "llama": (OutputUse(path="post_attention_layernorm", factor=1.0), "mlp.down_proj"),
    "granite": (OutputUse(path="post_attention_layernorm", factor=0.5), "mlp.down_proj"),
    "gemma2": (OutputUse(path="post_attention_layernorm", factor=1.0), None),
    "olmo2": (OutputUse(path="post_attention_layernorm", factor=1.0), None),
    "gpt2": (OutputUse(path="ln_2", factor=1.0), "mlp.c_proj"),
    "gptj": (OutputUse(path=None, factor=1.0), "mlp.fc_out"),
    "gpt_neox": (OutputUse(path=None, factor=1.0), "mlp.dense_4h_to_h"),
    "phi": (OutputUse(path=None, factor=1.0), "mlp.fc2"),
    "opt": (OutputUse(path="final_layer_norm", factor=1.0), "fc2"),
    "mixtral": (OutputUse(path="post_attention_layernorm", factor=1.0), None),
}


@contextmanager
def _layered(folder: Path) -> Iterator[tuple[LayeredModel, SourceReader]]:
    source = read_source(folder)
    with SourceReader(source.checkpoint.files) as reader:
        yield LayeredModel(source, reader), reader


@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_layers_give_what_the_whole_model_gives(model_type: str, make_model: MakeModel) -> None:
    folder = make_model(model_type)
    whole = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    states = whole(IDS, output_hidden_states=True, use_cache=False).hidden_states
    with _layered(folder) as (layered, _):
        rows = new_rows(4, torch.empty(32, 32), held=1)
        calls = record(layered, IDS, BATCHES, [rows])
        assert torch.allclose(rows[0:4], states[0], atol=1e-6)
        for index in range(len(layered.layers) - 1):  # the last state is behind the final norm
            with layered.layer(index) as layer:
                for batch in BATCHES:
                    rows[batch] = calls[index].run(layer, rows[batch])
            assert torch.allclose(rows[0:4], states[index + 1], rtol=1e-4, atol=1e-5)


def test_only_the_layer_at_hand_has_weights(make_model: MakeModel) -> None:
    folder = make_model("llama")
    with _layered(folder) as (layered, _):
        assert all(value.is_meta for value in layered.model.parameters())
        with layered.layer(1):
            real = {n for n, value in layered.model.named_parameters() if not value.is_meta}
            assert real and all(name.startswith("model.layers.1.") for name in real)
        assert all(value.is_meta for value in layered.model.parameters())


@pytest.mark.parametrize("model_type", sorted(USES))
def test_how_a_layer_uses_its_attention_and_mlp(model_type: str, make_model: MakeModel) -> None:
    folder = make_model(model_type)
    wanted, last = USES[model_type]
    with _layered(folder) as (layered, _):
        rows = new_rows(4, torch.empty(32, 32), held=1)
        call = record(layered, IDS, BATCHES, [rows])[0]
        place = attention_place(layered, layered.source.attention_map.attentions[0, False])
        with layered.layer(0) as layer:
            use = use_of_attention(layer, call, rows[BATCHES[0]], place)
            found = last_projection(layer, call, rows[BATCHES[0]], place)
    assert use is not None and use.path == wanted.path
    assert use.factor == pytest.approx(wanted.factor, rel=1e-3)
    assert (found.path if found else None) == last


def test_moments_are_those_of_what_transformers_computes(make_model: MakeModel) -> None:
    """GPT-2 in numbers of its own: q, k and v from c_attn, weights from the attentions."""
    folder = make_model("gpt2")
    whole = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
    seen = []
    whole.transformer.h[0].attn.c_attn.register_forward_hook(lambda m, a, out: seen.append(out))
    mixing = whole(IDS, output_attentions=True, use_cache=False).attentions[0].double()
    q, k, v = (part.unflatten(-1, (4, 8)).double() for part in seen[0].split(32, -1))
    groups = [[2, 0], [1, 3]]
    with _layered(folder) as (layered, reader):
        rows = new_rows(4, torch.empty(32, 32), held=1)
        call = record(layered, IDS, BATCHES, [rows])[0]
        tensors = layered.source.attention_map.attentions[0, False]
        weights = weights_of(tensors, reader.tensor)
        sums, every = MomentSums(weights, groups), MomentSums(weights, None)
        with layered.layer(0) as layer:
            for batch in BATCHES:
                with watching(layer, attention_place(layered, tensors)) as looked:
                    call.run(layer, rows[batch])
                assert looked.inputs is not None
                sums.add(looked.inputs, looked.mixing)
                every.add(looked.inputs, looked.mixing)
    found, tokens = sums.result(every.result()), IDS.numel()
    close = {"rtol": 1e-4, "atol": 1e-6}
    assert torch.allclose(found.queries, torch.einsum("bthi,bthj->hij", q, q) / tokens, **close)
    flat = k.flatten(2).flatten(0, 1)
    assert torch.allclose(found.keys, flat.T @ flat / tokens, **close)
    assert torch.allclose(found.key_mean, flat.mean(0), **close)
    assert found.mixed is not None and found.mixed_mean is not None
    for head, members in ((0, [2, 0]), (2, [2, 0]), (1, [1, 3]), (3, [1, 3])):
        mixed = (mixing[:, head] @ v[:, :, members].flatten(2)).flatten(0, 1)
        assert torch.allclose(found.mixed[head], mixed.T @ mixed / tokens, **close)
        assert torch.allclose(found.mixed_mean[head], mixed.mean(0), **close)
    all_mixed = (mixing[:, :, ::2] @ v.flatten(2)[:, None]).flatten(0, 2)  # every second query
    assert torch.allclose(found.values, all_mixed.T @ all_mixed / len(all_mixed), **close)
