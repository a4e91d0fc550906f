"""What other tools say of the cache of ten models, beside headcount, `audit` and `plan` of which
are one account, and beside the models that transformers runs.

    python bench/peers.py ENVIRONMENTS [--only TOOL ...] [--models NAME ...]

Each tool is installed in the version given here, in an environment of its own in the folder
ENVIRONMENTS, if it is not there, and run unchanged on the published config of each model and on
headers of weights as transformers would save them. They come from a stand-in for the Hub: two tools
have its address in their code and are led to it. The models, one for each way of keeping a cache,
were chosen before any tool was run. Prints GiB of one request at 16 bit, and the error in percent.

The truth is the cache that the model of transformers makes of so many tokens, on the meta device.
Within 1 % is right: some keep a window of n - 1 tokens, others n.
"""

import argparse
import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedModel

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tests" / "support" / "truth")]

import hub_server  # noqa: E402
import transformers_truth  # noqa: E402
import whole_models  # noqa: E402
from headcount.running.built.built_layers import decoder_of  # noqa: E402
from headcount.running.built.cached_elements import tensors_in  # noqa: E402
from headcount.running.built.shapes_only import shapes_only  # noqa: E402
from headcount.sources.catalogue import find_row, read_entry  # noqa: E402

GIB = 2**30
LONGEST = 32_768
RIGHT = 0.01
MODELS = {
    "openai-community/gpt2": "MHA, old names",
    "meta-llama/Llama-3.1-8B": "GQA",
    "mistralai/Mistral-7B-v0.1": "a window in all layers",
    "google/gemma-3-27b-it": "windows in 5 of 6 layers",
    "openai/gpt-oss-20b": "windows in every other layer",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "chunks in 3 of 4 layers",
    "google/gemma-4-E2B-it": "layers that share a cache",
    "deepseek-ai/DeepSeek-V3": "MLA",
    "deepseek-ai/DeepSeek-V3.2": "MLA with an indexer",
    "Qwen/Qwen3-Next-80B-A3B-Instruct": "recurrent state in 3 of 4 layers",
}


@dataclass(frozen=True)
class Subject:
    """A model as a tool is asked of it."""

    name: str
    folder: Path
    tokens: int


@dataclass(frozen=True)
class Peer:
    """A tool: what pip installs, the arguments for its Python, and the bytes in what it prints."""

    name: str
    packages: tuple[str, ...]
    arguments: Callable[[Subject], tuple[str, ...]]
    found: Callable[[Any], float]


# The two that have the Hub's address in their code ask the stand-in instead.
HF_MEM = """
import os, httpx2
from hf_mem.cli import main
ask = httpx2.AsyncClient.request
async def asked(self, method, url, **how):
    url = str(url).replace("https://huggingface.co", os.environ["HF_ENDPOINT"])
    return await ask(self, method, url, **how)
httpx2.AsyncClient.request = asked
main()
"""
KVFIT = """
import os, kvfit.hf
from kvfit.cli import main
request = kvfit.hf.Request
def asked(url, **how):
    return request(url.replace("https://huggingface.co", os.environ["HF_ENDPOINT"]), **how)
kvfit.hf.Request = asked
main()
"""
# Its commands print no cache of one request; its planner asks this of each model.
_AICONFIGURATOR = """
import json, sys
from aiconfigurator_core.sdk import common, config
from aiconfigurator_core.sdk.models import get_model
asked = config.ModelConfig(
    moe_tp_size=1, moe_ep_size=1, kvcache_quant_mode=common.KVCacheQuantMode.bfloat16
)
model = get_model(sys.argv[1], asked, "vllm")
print(json.dumps({"bytes": model.get_kvcache_bytes_per_sequence(int(sys.argv[2]))}))
"""


def module(name: str, *arguments: str) -> tuple[str, ...]:
    """Runs the console command `name` of an environment from its Python."""
    begin = (
        "import sys; from importlib.metadata import entry_points; "
        f"sys.argv[0] = {name!r}; "
        f"next(iter(entry_points(group='console_scripts', name={name!r}))).load()()"
    )
    return ("-c", begin, *arguments)


PEERS = (
    Peer(
        "hf-mem",
        ("hf-mem==0.5.6",),
        lambda one: (
            *("-c", HF_MEM, "--model-id", one.name, "--experimental", "--json-output"),
            *("--max-model-len", str(one.tokens)),
        ),
        lambda said: said["kv_cache"],
    ),
    Peer(
        "kvfit",
        ("kvfit==0.3.0",),
        lambda one: (
            *("-c", KVFIT, one.name, "--context", str(one.tokens), "--json"),
            *("--hardware", "h100", "--weight-gib", "16", "--kv-dtype", "bf16"),
        ),
        lambda said: said["cache"]["bytes_per_sequence"],
    ),
    Peer(
        "vramscout",
        ("vramscout==0.7.0",),
        lambda one: module(
            *("vramscout", one.name, "--context", str(one.tokens), "--vram-gib", "9999"),
            *("--kv-dtype", "bf16", "--json"),
        ),
        lambda said: said["parts_gib"]["KV cache"] * GIB,
    ),
    Peer(
        "llm-d-planner",
        ("llm-d-planner[estimation]==0.3.3", "transformers==5.24.0"),
        lambda one: module(
            "planner", "plan", "--model", one.name, "--max-model-len", str(one.tokens)
        ),
        lambda said: said["kv_cache_detail"]["per_request_kv_cache_gb"] * GIB,
    ),
    Peer(
        "fitcheck-llm",
        ("fitcheck-llm==0.3.1",),
        lambda one: module("fitcheck", "infer", one.name, "--seq-len", str(one.tokens), "--json"),
        lambda said: said["kv_cache_mib_per_request"] * 2**20,
    ),
    Peer(
        "vramcalc",
        ("vramcalc==0.1.2",),
        lambda one: module(
            "vramcalc", "estimate", str(one.folder), "--seq", str(one.tokens), "--json"
        ),
        lambda said: said["estimate"]["kv_cache"],
    ),
    Peer(
        "aiconfigurator",
        ("aiconfigurator==0.12.0",),
        lambda one: ("-c", _AICONFIGURATOR, str(one.folder), str(one.tokens)),
        lambda said: said["bytes"],
    ),
)


def environment(peer: Peer, folder: Path) -> Path:
    """The Python of the tool's own environment, which is made if it is not there."""
    home = folder / peer.name
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *peer.packages], check=True)
    return python


def made(name: str, folder: Path, counts: dict[str, dict[str, int]]) -> tuple[Subject, int]:
    """The published config of a model, headers of its weights, and the bytes of its real cache.
    `counts` gets its parameters, which the Hub tells of each model.

    Code beside the weights is not there, so that the config does not name it either."""
    row = find_row(name)
    assert row is not None
    config: Mapping[str, Any] = read_entry(row, name).config
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = transformers_truth.build_on_meta(config)
    finally:
        torch.set_default_dtype(before)
    one = folder / name
    one.mkdir(parents=True)
    whole_models.save(model, one, shard="200MB")
    counts[name] = {"BF16": whole_models.parameters(model)}
    config = {key: value for key, value in config.items() if key != "auto_map"}
    (one / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = config.get("text_config") or config
    reach = text.get("max_position_embeddings") or text.get("n_positions") or LONGEST
    tokens = min(LONGEST, reach)
    return Subject(name, one, tokens), cached_bytes(model, tokens)


def cached_bytes(model: PreTrainedModel, tokens: int) -> int:
    """Bytes that the default cache holds after so many tokens, each tensor in its own dtype:
    recurrent states are kept in float32."""
    ids = torch.zeros(1, tokens, dtype=torch.long, device="meta")
    with torch.no_grad(), torch.device("meta"), shapes_only(model):
        cache = decoder_of(model)(input_ids=ids, use_cache=True).past_key_values
    held = {id(tensor): tensor for layer in cache.layers for tensor in tensors_in(layer)}
    return sum(tensor.numel() * tensor.element_size() for tensor in held.values())


def asked(python: Path, peer: Peer, one: Subject, address: str, home: str) -> float | str:
    """Bytes of a request, or the last line of what the tool says instead."""
    environ = {
        **{key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        **{"HF_ENDPOINT": address, "HF_HOME": home, "HF_HUB_DISABLE_XET": "1"},
    }
    environ.pop("HF_HUB_OFFLINE", None)
    ran = subprocess.run(
        [python, *peer.arguments(one)],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    start = ran.stdout.find("{")
    try:
        return float(peer.found(json.loads(ran.stdout[start:])))
    except (ValueError, KeyError, TypeError):
        said = (ran.stderr.strip() or ran.stdout.strip() or "nothing").splitlines()
        return said[-1].strip()


def ours(one: Subject) -> float | str:
    """headcount's account, of the folder: its command, not its functions."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "headcount", "audit", str(one.folder)),
            *("--context", str(one.tokens), "--kv-dtype", "bfloat16", "--format", "json"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return float(json.loads(ran.stdout)["totals"]["cache_bytes"])


def cell(found: float | str, held: int) -> str:
    if isinstance(found, str):
        return "refused"
    error = found / held - 1
    mark = "" if abs(error) > RIGHT else "**"
    return f"{mark}{found / GIB:.2f}{mark} ({error:+.0%})"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("environments", type=Path)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--only", nargs="*", default=[peer.name for peer in PEERS])
    given = parser.parse_args()
    peers = [peer for peer in PEERS if peer.name in given.only]
    pythons = {peer.name: environment(peer, given.environments) for peer in peers}
    names = ("headcount", *(peer.packages[0].replace("[estimation]", "") for peer in peers))
    right = dict.fromkeys(names, 0)
    print(f"Run on {date.today()}; GiB of a request of {LONGEST:,} tokens, or as many")
    print("as the model takes.\n")
    print(f"| model | keeps | truth | {' | '.join(names)} |")
    print(f"|---|---|---:|{'---:|' * len(names)}")
    with TemporaryDirectory() as scratch:
        hub = hub_server.Hub(folder=Path(scratch))
        for name in given.models:
            one, held = made(name, hub.folder, hub.counts)
            said = [ours(one)]
            with hub_server.serve(hub):
                for peer in peers:
                    home = str(Path(scratch) / f"home of {peer.name}")
                    said.append(asked(pythons[peer.name], peer, one, hub.url, home))
            for tool, found in zip(names, said, strict=True):
                if isinstance(found, str):
                    print(f"{name}: {tool}: {found}", file=sys.stderr)
                    continue
                right[tool] += abs(found / held - 1) <= RIGHT
            cells = " | ".join(cell(found, held) for found in said)
            print(f"| {name} | {MODELS[name]} | {held / GIB:.2f} | {cells} |", flush=True)
    shares = " | ".join(f"{right[tool]} of {len(given.models)}" for tool in names)
    print(f"| right | | | {shares} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
