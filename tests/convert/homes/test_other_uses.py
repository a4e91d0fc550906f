"""The modelling file of our own under torch.compile, with adapters of peft, with other heads, and
where transformers branches on the type of a model."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    AutoModelForTokenClassification,
    GPT2LMHeadModel,
    PreTrainedModel,
)

from conversions import load_whole, run, small_whisper
from headcount.convert.models.modeling_headcount import CacheView
from mha_types import HEADS, KV, TOKENS, logits, settle, tie, tiny_model

pytestmark = pytest.mark.needs_convert


@pytest.fixture(scope="module", params=["gpt2", "opt"])
def folders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(model_type, a model whose heads agree in groups, its conversion): q, k and v in one tensor,
    and each in its own."""
    folder = tmp_path_factory.mktemp(request.param)
    model = tiny_model(request.param, "causal", use_cache=True)
    tie(model)
    model.save_pretrained(folder / "mha")
    run(folder / "mha", folder / "gqa", KV)
    return request.param, folder / "mha", folder / "gqa"


def load(folder: Path) -> PreTrainedModel:
    model: PreTrainedModel = load_whole(folder, AutoModelForCausalLM)
    settle(model)
    return model


def generated(model: Any, **options: Any) -> torch.Tensor:
    mask = torch.ones_like(TOKENS)
    out: torch.Tensor = model.generate(
        TOKENS, attention_mask=mask, max_new_tokens=5, do_sample=False, **options
    )
    return out


@pytest.mark.parametrize("use_cache", [False, True])
def test_it_compiles(folders: Any, use_cache: bool) -> None:
    """As one graph where there is no cache."""
    if folders[0] != "opt":
        pytest.skip("compiling is slow: GPT-2 is what the slow test below compiles")
    torch._dynamo.reset()
    reference, model = load(folders[1]), load(folders[2])
    compiled = torch.compile(model, backend="eager", fullgraph=not use_cache)
    with torch.no_grad():
        got = compiled(TOKENS, use_cache=use_cache)
        assert (got.logits - logits(reference)).abs().max() <= 1e-10
        if use_cache:
            cache = got.get("cache", got.get("past_key_values"))
            again = compiled(TOKENS[:, :1], past_key_values=cache).logits
            wanted = logits_of(reference, torch.cat([TOKENS, TOKENS[:, :1]], dim=1))
            assert (again[:, -1] - wanted[:, -1]).abs().max() <= 1e-10
            assert cache.layers[0].keys.shape[1:3] == (KV, TOKENS.shape[1] + 1)
    torch._dynamo.reset()


@torch.no_grad()
def logits_of(model: Any, tokens: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(tokens, use_cache=False).logits
    return found


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_it_generates_when_compiled(folders: Any, cache: str) -> None:
    if folders[0] != "gpt2":
        pytest.skip("compiling is slow")
    torch._dynamo.reset()
    reference, model = load(folders[1]), load(folders[2])
    model.forward = torch.compile(model.forward, backend="eager")
    options = {"cache_implementation": cache}
    assert torch.equal(generated(model, **options), generated(reference, **options))
    torch._dynamo.reset()


def test_lora_is_trained_and_merged(folders: Any) -> None:
    """Adapters of q, k, v and o have rows as they are stored. Merged, copied, taken off again and
    saved they compute what they say."""
    peft = pytest.importorskip("peft")
    names = {"gpt2": ["c_attn", "c_proj"], "opt": ["q_proj", "k_proj", "v_proj", "out_proj"]}
    torch.manual_seed(0)
    model = load(folders[2])
    plain = logits(model)
    config = peft.LoraConfig(
        target_modules=names[folders[0]],
        r=4,
        init_lora_weights=False,
        fan_in_fan_out=folders[0] == "gpt2",
    )
    adapted = peft.get_peft_model(model, config).double().eval()
    adapted(input_ids=TOKENS, labels=TOKENS).loss.backward()
    slopes = {name: p.grad for name, p in adapted.named_parameters() if p.requires_grad}
    assert slopes
    assert all(slope is not None and slope.abs().sum() > 0 for slope in slopes.values())
    changed = logits(adapted)
    assert (changed - plain).abs().max() > 1e-3
    with adapted.disable_adapter():
        assert torch.equal(logits(adapted), plain)
    tokens = generated(adapted)
    merged = adapted.merge_and_unload()
    assert (logits(merged) - changed).abs().max() <= 1e-10
    assert torch.equal(generated(merged), tokens)


@pytest.mark.parametrize(
    ("auto", "width"),
    [
        (AutoModelForSequenceClassification, 3),
        (AutoModelForTokenClassification, 3),
        (AutoModelForQuestionAnswering, None),
    ],
)
def test_heads_of_other_tasks(folders: Any, auto: Any, width: int | None) -> None:
    """A head on top of the converted body gives what it gives on the body that it was made from,
    and its class is saved and found again."""
    options = {} if width is None else {"num_labels": width}
    if (folders[0], auto) == ("opt", AutoModelForTokenClassification):
        pytest.skip("transformers has no such class")
    torch.manual_seed(0)
    reference = auto.from_pretrained(folders[1], dtype=torch.float64, **options).eval()
    converted = auto.from_pretrained(folders[2], dtype=torch.float64, **options).eval()
    own = {n: p for n, p in reference.named_parameters() if not n.startswith(BODIES)}
    assert own
    converted.load_state_dict(own, strict=False)
    for model in (reference, converted):
        model.config.pad_token_id = 0
    with torch.no_grad():
        one, two = (model(TOKENS)[0] for model in (reference, converted))
    assert (one - two).abs().max() <= 1e-10
    names = json.loads((folders[2] / "config.json").read_text())["auto_map"]
    assert names[auto.__name__] == f"modeling_headcount.{type(converted).__name__}"


BODIES = ("transformer.", "model.")


def test_the_class_of_transformers_refuses_it(folders: Any) -> None:
    """Asked for by name it finds other shapes than it has, and loads nothing."""
    if folders[0] != "gpt2":
        pytest.skip("one class is enough")
    with pytest.raises(RuntimeError, match="ignore_mismatched_sizes"):
        GPT2LMHeadModel.from_pretrained(folders[2])


def test_a_view_is_a_cache_of_the_same_class(folders: Any) -> None:
    """And is gone once the attention is done."""
    seen: list[Any] = []
    model: Any = load(folders[2])
    attention = next(m for n, m in model.named_modules() if n.endswith(("attn", "self_attn")))
    assert type(attention).__name__ in ("GPT2Attention", "OPTAttention")

    def look(module: Any, args: Any, kwargs: Any) -> None:
        seen.extend(v for v in (*args, *kwargs.values()) if isinstance(v, CacheView))

    attention.register_forward_pre_hook(look, with_kwargs=True)
    with torch.no_grad():
        cache = model(TOKENS, use_cache=True).past_key_values
    assert len(seen) == 1
    assert isinstance(seen[0], type(cache))
    assert not isinstance(cache, CacheView)
    assert seen[0].get_seq_length() == cache.get_seq_length() == TOKENS.shape[1]
    assert len(seen[0]) == len(cache)
    assert seen[0].layers[0].keys.shape[1] == HEADS
    assert cache.layers[0].keys.shape[1] == KV


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    folder = tmp_path_factory.mktemp("whisper")
    torch.manual_seed(0)
    model = small_whisper(HEADS, source_positions=1500)
    tie(model)
    model.save_pretrained(folder / "mha")
    run(folder / "mha", folder / "gqa", KV)
    reference, converted = (
        load_whole(folder / name, AutoModelForSpeechSeq2Seq) for name in ("mha", "gqa")
    )
    return reference, converted


@pytest.mark.parametrize(
    "prompt", [{}, {"prompt_ids": torch.tensor([5, 6, 7])}, {"decoder_input_ids": TOKENS[:1, :3]}]
)
def test_whisper_generates_the_same_tokens(whisper: Any, prompt: dict[str, torch.Tensor]) -> None:
    """transformers puts the start token in front of what it is given, but not of Whisper's."""
    sound = torch.randn(1, 8, 3000, dtype=torch.float64)
    options = {"max_new_tokens": 6, "do_sample": False}
    out = [model.generate(sound, **options, **prompt) for model in whisper]
    assert torch.equal(*out)


def test_pipelines_take_it_for_whisper(whisper: Any) -> None:
    """A sound in two chunks, of which a pipeline asks Whisper alone for time stamps' tokens."""
    from tokenizers import Tokenizer, models
    from transformers import (
        AutomaticSpeechRecognitionPipeline,
        PreTrainedTokenizerFast,
        WhisperFeatureExtractor,
    )

    class Words(PreTrainedTokenizerFast):
        """Says which tokens it was given."""

        def _decode_asr(self, outputs: Any, **options: Any) -> Any:
            return [output["tokens"].tolist() for output in outputs], {}

    vocabulary = {f"w{i}": i for i in range(96)}
    model = Tokenizer(models.WordLevel(vocabulary, unk_token="w0"))
    sound = torch.randn(16000 * 3, generator=torch.Generator().manual_seed(0)).numpy()
    said = []
    for one in whisper:
        pipeline = AutomaticSpeechRecognitionPipeline(
            model=one,
            tokenizer=Words(tokenizer_object=model, unk_token="w0"),
            feature_extractor=WhisperFeatureExtractor(feature_size=8),
            dtype=torch.float64,
        )
        said.append((pipeline.type, pipeline(sound, generate_kwargs={"max_new_tokens": 5})))
    assert said[0][0] == "seq2seq_whisper"
    assert said[0][1]["text"][0]
    assert said[0] == said[1]


def test_the_type_is_ours_in_files_and_the_bases_in_memory(whisper: Any, tmp_path: Path) -> None:
    converted = whisper[1]
    assert (converted.config.model_type, type(converted.config).model_type) == (
        "whisper",
        "headcount_whisper",
    )
    converted.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved["model_type"] == "headcount_whisper"


# Files of transformers outside its models that branch on the type of a model: of one that converts
# to the modelling file they have to see the base's. A new one has to be looked at.
BRANCHES = {"generation/utils.py"} | {
    f"pipelines/{name}.py"
    for name in ("automatic_speech_recognition", "text_to_audio", "document_question_answering")
}


def test_all_branches_on_a_type_read_it_off_the_config_in_memory() -> None:
    """Which is the base's; the class of a config says ours."""
    root = Path(transformers.__file__).parent
    files = [p for room in ("generation", "pipelines") for p in (root / room).rglob("*.py")]
    texts = {path.relative_to(root).as_posix(): path.read_text("utf-8") for path in files}
    branch = re.compile(r"config(\.[a-z]+)?\.model_type (==|!=|in)")
    assert {name for name, text in texts.items() if branch.search(text)} == BRANCHES
    assert not any("__class__.model_type" in text for text in texts.values())
