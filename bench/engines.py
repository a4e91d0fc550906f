"""Whether engines that are not transformers compute what transformers does from a conversion.

    python bench/engines.py [SOURCE] [--kv-heads 2] [--tokens 64] [--text FILE]

Converts SOURCE, a Llama in a folder (without one, a small Llama is made), and lets each engine that
is installed read the result on a CPU in float32. Prints the largest difference between its logits
and those of transformers over the same tokens, and how often both have the same first choice. An
engine that gives log-probabilities only is compared by these. Each runs in a process of its own.

    pip install ctranslate2 mlx[cpu] mlx-lm gguf xllamacpp onnx onnxscript onnxruntime
"""

import argparse
import importlib
import importlib.util
import multiprocessing
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from headcount.convert.conversion import convert
from headcount.convert.plan.request import ConversionRequest
from headcount.running.text import read_text

VOCABULARY = 512


@dataclass(frozen=True, kw_only=True)
class Engine:
    """`run(folder, ids)` gives an array [tokens, vocabulary]; `modules` are what it imports."""

    name: str
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    log_probabilities: bool
    run: Callable[[Path, list[int]], Any]


def modules(*names: str) -> list[ModuleType]:
    """Imported by name, since most machines lack some of them."""
    return [importlib.import_module(name) for name in names]


def run_transformers(folder: Path, ids: list[int]) -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def run_ctranslate2(folder: Path, ids: list[int]) -> Any:
    ctranslate2, converters, numpy = modules("ctranslate2", "ctranslate2.converters", "numpy")
    with tempfile.TemporaryDirectory() as out:
        converters.TransformersConverter(str(folder)).convert(out, force=True)
        generator = ctranslate2.Generator(out, device="cpu", compute_type="float32")
        return numpy.array(generator.forward_batch([ids]))[0]


def run_mlx(folder: Path, ids: list[int]) -> Any:
    """The first half at once, then token by token from its cache of K/V heads."""
    core, load, cache, numpy = modules("mlx.core", "mlx_lm.utils", "mlx_lm.models.cache", "numpy")
    core.set_default_device(core.cpu)
    model, _ = load.load_model(folder, model_config=mlx_config(folder))
    model.set_dtype(core.float32)
    kept = cache.make_prompt_cache(model)
    half = len(ids) // 2
    parts = [ids[:half], *([token] for token in ids[half:])]
    logits = [model(core.array([part]), cache=kept) for part in parts]
    return numpy.array(core.concatenate(logits, axis=1))[0]


def mlx_config(folder: Path) -> dict[str, Any]:
    """mlx-lm (0.32) looks for `rope_theta` where transformers before 5 wrote it, and takes 10,000
    if it is not there: a source with another base comes out as wrong as its conversion."""
    rope = AutoConfig.from_pretrained(folder).rope_parameters
    return {"rope_theta": rope["rope_theta"]}


def run_llama_cpp(folder: Path, ids: list[int]) -> Any:
    """Log-probabilities of the next token after each prefix, through llama.cpp's server without a
    port: each request goes on from the cache of the last."""
    llama, numpy, engine_gguf = modules("xllamacpp", "numpy", "engine_gguf")
    with tempfile.TemporaryDirectory() as out:
        path = Path(out) / "model.gguf"
        size = engine_gguf.write_gguf(folder, path)
        server = llama.Server(llama_cpp_settings(llama, path, len(ids)))
        rows = numpy.full((len(ids), size), -numpy.inf, numpy.float32)
        for end, row in enumerate(rows, 1):
            answer = server.handle_completions(
                {
                    **{"prompt": ids[:end], "n_predict": 1, "temperature": 0.0},
                    **{"n_probs": size, "cache_prompt": True},
                    # Some tokens (the end, half a letter) come without their probabilities, which
                    # are those before this bias.
                    "logit_bias": [[size - 1, 1000.0]],
                }
            )
            for entry in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]:
                row[entry["id"]] = entry["logprob"]
        return rows


def llama_cpp_settings(llama: ModuleType, path: Path, tokens: int) -> Any:
    """A cache in float32, and no flash attention, which works in float16."""
    settings = llama.CommonParams()
    settings.model.path = str(path)
    settings.n_ctx = tokens + 8
    settings.n_parallel = 1
    settings.n_gpu_layers = 0
    settings.cache_type_k = settings.cache_type_v = llama.ggml_type.GGML_TYPE_F32
    settings.flash_attn_type = llama.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    settings.warmup = False
    return settings


def run_onnxruntime(folder: Path, ids: list[int]) -> Any:
    """The graph is what torch exports of transformers' own code; the operators are its own."""
    onnxruntime, _, _ = modules("onnxruntime", "onnx", "onnxscript")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with tempfile.TemporaryDirectory() as out:
        path = Path(out) / "model.onnx"
        tokens = torch.tensor([ids])
        torch.onnx.export(Logits(model).eval(), (tokens,), path, dynamo=True, verbose=False)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feed = {session.get_inputs()[0].name: tokens.numpy()}
        return session.run(None, feed)[0][0]


class Logits(torch.nn.Module):
    """Ids in, logits out, no cache."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> Any:
        return self.model(ids, use_cache=False).logits


ENGINES = (
    Engine(
        name="CTranslate2",
        packages=("ctranslate2",),
        modules=("ctranslate2",),
        log_probabilities=False,
        run=run_ctranslate2,
    ),
    Engine(
        name="mlx-lm",
        packages=("mlx-cpu", "mlx-lm"),
        modules=("mlx.core", "mlx_lm.utils"),
        log_probabilities=False,
        run=run_mlx,
    ),
    Engine(
        name="llama.cpp",
        packages=("xllamacpp", "gguf"),
        modules=("xllamacpp", "gguf"),
        log_probabilities=True,
        run=run_llama_cpp,
    ),
    Engine(
        name="onnxruntime",
        packages=("onnxruntime", "onnx", "onnxscript"),
        modules=("onnxruntime", "onnx", "onnxscript"),
        log_probabilities=False,
        run=run_onnxruntime,
    ),
)


def make(folder: Path) -> None:
    """An untrained Llama with a rotary base that is no engine's default, and a tokenizer of made
    words, without which CTranslate2 converts nothing."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=8,
        num_key_value_heads=8,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words = {"<unk>": 0, "<s>": 1, "</s>": 2} | {f"w{i}": i for i in range(3, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(folder)


def tokens(folder: Path, count: int, text: Path | None) -> list[int]:
    """The first tokens of the text; of a model of made words, any."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if len(tokenizer) == VOCABULARY and text is None:
        drawn = torch.randint(3, VOCABULARY, (count,), generator=torch.Generator().manual_seed(0))
        return [int(token) for token in drawn]
    ids: list[int] = tokenizer(read_text(text).content[: 20 * count])["input_ids"]
    return ids[:count]


def run_apart(run: Callable[[Path, list[int]], Any], folder: Path, ids: list[int]) -> torch.Tensor:
    """In a new process: two engines' thread pools, or a crash, stay out of this one."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return torch.from_numpy(pool.submit(run, folder, ids).result()).double()


def compare(engine: Engine, folder: Path, ids: list[int], expected: torch.Tensor) -> str:
    """A line about the engine: figures, or why there are none."""
    absent = [name for name in engine.modules if not installed(name)]
    if absent:
        return f"skipped: no module {absent[0]} (pip install {' '.join(engine.packages)})"
    try:
        got = run_apart(engine.run, folder, ids)
    except Exception as error:  # whatever a third party raises is what is to be told
        return f"failed: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    of = expected.log_softmax(-1) if engine.log_probabilities else expected
    kind = "log-probability" if engine.log_probabilities else "logit"
    same = float((got.argmax(-1) == of.argmax(-1)).double().mean())
    return (
        f"max {kind} difference {float((got - of).abs().max()):.1e}"
        f" (largest {float(of.abs().max()):.1f}), same first choice {same:.0%}"
        f"   [{', '.join(f'{name} {version(name)}' for name in engine.packages)}]"
    )


def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("source", type=Path, nargs="?", help="a folder; default: one that is made")
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--text", type=Path, help="UTF-8; default: the packaged sample")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = options.source or Path(folder) / "made"
        if options.source is None:
            make(source)
        target = Path(folder) / "converted"
        request = ConversionRequest(
            source=source, target=target, num_key_value_heads=options.kv_heads
        )
        convert(request, progress=False)
        ids = tokens(target, options.tokens, options.text)
        expected = run_apart(run_transformers, target, ids)
        print(f"{source.name} -> {options.kv_heads} K/V heads, {len(ids)} tokens, float32")
        for engine in ENGINES:
            print(f"{engine.name:<12} {compare(engine, target, ids, expected)}", flush=True)


if __name__ == "__main__":
    main()
