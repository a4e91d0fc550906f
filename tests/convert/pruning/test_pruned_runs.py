"""What pruned models do beyond one pass: caches, generation, merging of what stays, records."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from conversions import contents, load_whole
from headcount.audit import audit_model
from headcount.convert.check import check_conversion
from headcount.convert.conversion import ConversionReport, convert
from headcount.convert.plan.errors import CannotConvertError
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.verification.recorded import read_recorded
from headcount.convert.verification.verification import verify
from headcount.model.errors import InvalidConfigError
from pruned_models import FAMILIES, TOKENS, Family, masked

pytestmark = pytest.mark.needs_convert


def family(name: str, heads: int) -> Family:
    return next(f for f in FAMILIES if (f.name, f.heads) == (name, heads))


GPT2, MISTRAL, GROUPED = family("GPT2", 6), family("Mistral", 6), family("Llama", 12)


def prune(source: Path, pruned: Any, **options: Any) -> ConversionReport:
    wanted = {"num_key_value_heads": None, "target": source.parent / "out", **options}
    return convert(ConversionRequest(source=source, pruned_heads=pruned, **wanted), progress=False)


@pytest.mark.parametrize(
    ("own", "pruned"),
    [
        (GPT2, {0: (1, 4), 1: (0, 5)}),
        (GPT2, {1: (2,)}),  # one layer alone
        (MISTRAL, {0: (0, 1), 1: (4, 5)}),
        (GROUPED, {0: (0, 4, 8, 9), 1: (1, 3, 7, 11)}),
        (family("Bloom", 6), {0: (1, 4), 1: (0, 5)}),
    ],
    ids=["custom", "one layer", "native", "grouped", "alibi"],
)
def test_it_generates_as_the_masked_source_and_caches_what_is_left(
    own: Family, pruned: dict[int, tuple[int, ...]], tmp_path: Path
) -> None:
    source = own.build(tmp_path / "source")
    done = prune(source, pruned)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    model = load_whole(source)
    with masked(model, own, pruned):
        wanted = model.generate(TOKENS, **options)
    assert torch.equal(load_whole(done.target).generate(TOKENS, **options), wanted)
    checked = check_conversion(source, done.target, lossless=False)
    assert checked.problems == ()
    whole = audit_model(str(source)).spec.cache_bytes(tokens=8, bits=32)
    assert audit_model(str(done.target)).spec.cache_bytes(tokens=8, bits=32) <= whole


def held(folder: Path) -> tuple[bytes, Any]:
    """Weights and config."""
    files = contents(folder)
    return files["model.safetensors"], json.loads(files["config.json"])


def tie(folder: Path, one: str, other: slice, like: slice) -> None:
    """Rows of K and V projections become as others are."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for name, tensor in tensors.items():
        if any(part in name for part in one.split(",")):
            tensor[other] = tensor[like]
    save_file(tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize("options", [{}, {"method": "merge", "grouping": "similar"}], ids=str)
@pytest.mark.parametrize("own", [MISTRAL, GROUPED], ids=["native", "custom"])
def test_equal_heads_that_stay_are_merged_without_loss(
    own: Family, options: dict[str, str], tmp_path: Path
) -> None:
    """The last two K/V heads are equal, and the groups of all others go."""
    source = own.build(tmp_path / "source")
    size, d = own.heads // own.key_value_heads, 8
    start = (own.key_value_heads - 2) * d
    tie(source, "k_proj,v_proj", slice(start + d, start + 2 * d), slice(start, start + d))
    gone = tuple(range((own.key_value_heads - 2) * size))
    done = prune(source, {0: gone, 1: gone}, num_key_value_heads=1, **options)
    model = load_whole(source)
    with masked(model, own, {0: gone, 1: gone}), torch.no_grad():
        wanted = model(TOKENS).logits
    with torch.no_grad():
        found = load_whole(done.target)(TOKENS).logits
    assert (found - wanted).abs().max() <= 1e-5
    assert [layer.after for layer in done.plan.layers] == [1, 1]


def test_heads_that_stay_and_do_not_divide_are_padded(tmp_path: Path) -> None:
    """3 K/V heads of 2 stay and become 2, of 4 query heads each: two are zeros."""
    own = family("Gemma2", 8)
    source = own.build(tmp_path / "source")
    tie(source, "k_proj,v_proj", slice(16, 24), slice(8, 16))
    gone = {0: (0, 1), 1: (0, 1)}
    done = prune(source, gone, num_key_value_heads=2)
    model = load_whole(source)
    with masked(model, own, gone), torch.no_grad():
        wanted = model(TOKENS).logits
    with torch.no_grad():
        found = load_whole(done.target)(TOKENS).logits
    assert (found - wanted).abs().max() <= 1e-5
    assert json.loads((done.target / "config.json").read_text())["num_attention_heads"] == 8


def test_a_choosing_method_says_which_heads_of_the_source_it_kept(tmp_path: Path) -> None:
    source = GROUPED.build(tmp_path / "source")
    done = prune(source, {0: (0, 1, 2, 3, 4, 5), 1: (3, 4, 5, 6, 7, 8)}, method="first",
                 num_key_value_heads=1)  # fmt: skip
    assert [layer.kept for layer in done.layers] == [(2,), (0,)]


@pytest.mark.parametrize("pruned", [3, {0: (0, 1, 2), 1: (3, 4, 5)}], ids=["chosen", "named"])
def test_the_record_makes_the_same_model_again(pruned: Any, tmp_path: Path) -> None:
    source = GROUPED.build(tmp_path / "source")
    done = prune(source, pruned)
    found = verify(read_recorded(done.target), source, sample=None, seed=0)
    assert not found.differences
    assert found.counts["recomputed"] == 2 * 4
    record = json.loads((done.target / "conversion.json").read_text())
    gone = {int(index): tuple(heads) for index, heads in record["request"]["pruned_heads"].items()}
    assert gone == {layer.index: layer.pruned for layer in done.plan.layers}
    assert (record["importance"] is None) == isinstance(pruned, dict)
    again = prune(source, gone, target=tmp_path / "again")
    weights = "model.safetensors"
    assert contents(again.target)[weights] == contents(done.target)[weights]
    assert prune(source, pruned).done_before


def test_what_was_pruned_can_be_pruned_again(tmp_path: Path) -> None:
    """Heads are numbered anew: 0 and 3 of those that stayed are 0 and 4 of the source."""
    source = MISTRAL.build(tmp_path / "source")
    first = prune(source, {0: (2, 3), 1: (2, 3)}, target=tmp_path / "first")
    second = prune(first.target, {0: (0, 3), 1: (0, 3)}, target=tmp_path / "second")
    once = prune(source, {0: (0, 2, 3, 5), 1: (0, 2, 3, 5)}, target=tmp_path / "once")
    weights = "model.safetensors"
    assert contents(second.target)[weights] == contents(once.target)[weights]


@pytest.mark.parametrize("name", ["GPT2", "GPTNeoX", "Bloom"])
def test_what_the_modelling_file_holds_can_be_pruned_and_merged_again(
    name: str, tmp_path: Path
) -> None:
    """Its class numbers heads as the first source did: 1 of those that stayed is 2 there."""
    own = family(name, 6)
    source = own.build(tmp_path / "source")
    first = prune(source, {0: (1, 4)}, target=tmp_path / "first")
    second = prune(first.target, {0: (1,), 1: (0,)}, target=tmp_path / "second")
    once = prune(source, {0: (1, 2, 4), 1: (0,)}, target=tmp_path / "once")
    assert held(second.target) == held(once.target)
    merged = prune(first.target, None, num_key_value_heads={0: 2, 1: 3}, target=tmp_path / "merged")
    at_once = prune(source, {0: (1, 4)}, num_key_value_heads={0: 2, 1: 3}, target=tmp_path / "one")
    assert held(merged.target) == held(at_once.target)
    model = load_whole(merged.target)
    with torch.no_grad():
        assert model(TOKENS).logits.isfinite().all()
    assert check_conversion(source, merged.target, lossless=False).problems == ()


def test_a_norm_over_all_heads_is_in_the_way(tmp_path: Path) -> None:
    import transformers

    own = {key: value for key, value in MISTRAL.config.items() if key != "head_dim"}
    settings = transformers.Olmo2Config(**own)
    transformers.Olmo2ForCausalLM(settings).save_pretrained(tmp_path / "source")
    with pytest.raises(CannotConvertError, match="norm over all heads, which pruning would change"):
        prune(tmp_path / "source", {0: (0, 1), 1: (0, 1)})


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({"0": "x"}, "kept_attention_heads.0 does not list query heads"),
        ({"7": [0]}, "kept_attention_heads.7 does not list query heads"),
        ({"0": [0, 0, 1, 2]}, "kept_attention_heads.0 does not list query heads"),
        ({"0": list(range(8))}, "lists 8 heads of 6"),
        ([], "names no layers"),
    ],
)
def test_a_config_that_lists_no_such_heads_is_an_error(
    kept: Any, words: str, tmp_path: Path
) -> None:
    source = GPT2.build(tmp_path / "source")
    path = prune(source, {0: (1, 4), 1: (0, 5)}).target / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kept_attention_heads": kept}))
    with pytest.raises(InvalidConfigError, match=words):
        audit_model(str(path))
