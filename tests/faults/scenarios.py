"""The commands of the table of faults, on tiny models, and what each of them may leave."""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from causal_models import build_model, make_tokenizer, sample_text
from headcount.convert.conversion import convert
from headcount.convert.plan.request import ConversionRequest
from start_up_logs import RECORDS, vllm_log

# What a run keeps for the next one of the same command, by its end.
WORK = r"\.out\.partial-.*"
TRAINING = r"\.out\.uptraining"


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A command, run in a folder of its own. `finals` are the names that it makes there; `before`
    makes what it finds there. `kept` matches names that an error may leave for the next run, and
    `kept_on_signal` those that a signal may. `comparable` is a final file without what differs
    between two runs that go well (seconds). `once`: refused where the output is there.
    `costly`: a run takes a model through transformers."""

    name: str
    arguments: tuple[str, ...]
    finals: tuple[str, ...] = ("out",)
    before: Callable[[Path, Path], None] = lambda work, inputs: None
    kept: str = ""
    kept_on_signal: str = ""
    comparable: Callable[[bytes], bytes] = bytes
    once: bool = False
    costly: bool = False


def make_inputs(folder: Path) -> None:
    """The models and texts that all commands read."""
    model = build_model("llama", num_key_value_heads=4, vocab_size=320)
    for name, size in (("model", "1GB"), ("sharded", "60KB")):
        model.save_pretrained(folder / name, max_shard_size=size)
        make_tokenizer(bos=False).save_pretrained(folder / name)
    _pickle(folder / "model", folder / "pickled")
    small = ConversionRequest(
        source=folder / "model", target=folder / "converted", num_key_value_heads=2
    )
    convert(small, progress=False)
    (folder / "prose.txt").write_text(sample_text()[:1500], encoding="utf-8")
    (folder / "start.log").write_text(vllm_log(RECORDS[0]), encoding="utf-8")


def _pickle(model: Path, folder: Path) -> None:
    import torch
    from safetensors.torch import load_file

    folder.mkdir()
    torch.save(load_file(model / "model.safetensors"), folder / "pytorch_model.bin")
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / name, folder / name)


def _older_model(work: Path, inputs: Path) -> None:
    request = ConversionRequest(
        source=inputs / "sharded", target=work / "out", num_key_value_heads=1
    )
    convert(request, progress=False)


def _older_report(work: Path, inputs: Path) -> None:
    (work / "report.json").write_text("what was written before\n" * 20)


def without_seconds(data: bytes) -> bytes:
    """A JSON report without times, which no two runs share."""
    return json.dumps(_timeless(json.loads(data))).encode()


def _timeless(value: Any) -> Any:
    if isinstance(value, Mapping):
        timed = ("seconds", "speed")
        return {k: _timeless(v) for k, v in value.items() if not k.endswith(timed)}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


_CONVERT = ("convert", "../inputs/sharded", "out", "--kv-heads", "2", "--workers", "1")
_LATENT = ("convert", "../inputs/sharded", "out", "--latent", "1/2", "--workers", "1")
_CALIBRATION = ("--calibration", "../inputs/prose.txt", "--calibration-tokens", "64")
_TEXT = ("--text", "../inputs/prose.txt", "--max-tokens", "32", "--torch-device", "cpu")
_REPORT = ("--format", "json", "-o", "report.json")
CONVERSIONS = (
    Scenario(name="convert", arguments=_CONVERT),
    Scenario(
        name="convert --quality good",
        arguments=(*_CONVERT, "--quality", "good", *_CALIBRATION),
        kept_on_signal=WORK,
        costly=True,
    ),
    Scenario(name="convert --overwrite", arguments=(*_CONVERT, "--overwrite"), before=_older_model),
    Scenario(
        name="convert --allow-pickle",
        arguments=("convert", "../inputs/pickled", *_CONVERT[2:], "--allow-pickle"),
    ),
    Scenario(
        name="convert -o",
        arguments=(*_CONVERT, *_REPORT),
        finals=("out", "report.json"),
        before=_older_report,
    ),
    Scenario(
        name="convert --sweep -o",  # without a target: it only measures
        arguments=(
            "convert",
            "../inputs/model",
            "--sweep",
            "1",
            "--workers",
            "1",
            *_TEXT,
            *_REPORT,
        ),
        finals=("report.json",),
        before=_older_report,
        comparable=without_seconds,
        costly=True,
    ),
    Scenario(
        name="convert --sweep",
        arguments=(
            *("convert", "../inputs/model", "out", "--sweep", "2,1", "--max-delta-loss", "100"),
            *("--workers", "1", *_TEXT),
        ),
        once=True,
        costly=True,
    ),
    Scenario(
        name="convert --latent",
        arguments=_LATENT,
        kept_on_signal=WORK,
        costly=True,
    ),
    Scenario(
        name="convert --latent --quality good",
        arguments=(*_LATENT, "--quality", "good", *_CALIBRATION),
        kept_on_signal=WORK,
        costly=True,
    ),
    Scenario(
        name="convert --home mla",
        arguments=(*_LATENT, "--home", "mla"),
        kept_on_signal=WORK,
        costly=True,
    ),
    Scenario(name="convert --format gguf", arguments=(*_CONVERT, "--format", "gguf"), costly=True),
)
UPTRAINING = Scenario(
    name="uptrain",
    arguments=(
        *("uptrain", "../inputs/converted", "--teacher", "../inputs/model"),
        *("--text", "../inputs/prose.txt", "--output-dir", "out", "--steps", "3"),
        *("--batch-size", "1", "--sequence-length", "8", "--warmup", "1", "--held-out", "20"),
        *("--checkpoint-every", "2", "--phase-one", "0.34", "--torch-device", "cpu"),
    ),
    kept=TRAINING,
    kept_on_signal=TRAINING,
    costly=True,
)


def _reporting(
    name: str,
    *arguments: str,
    before: Callable[[Path, Path], None] = _older_report,
    comparable: Callable[[bytes], bytes] = bytes,
) -> Scenario:
    return Scenario(
        name=f"{name} -o",
        arguments=(*arguments, *_REPORT),
        finals=("report.json",),
        before=before,
        comparable=comparable,
    )


REPORTS = (
    _reporting("audit", "audit", "../inputs/sharded"),
    Scenario(
        name="audit -o, no file there",
        arguments=("audit", "../inputs/model", *_REPORT),
        finals=("report.json",),
    ),
    _reporting("audit --scan", "audit", "../inputs/sharded", "--scan"),
    _reporting("diff", "diff", "../inputs/model", "../inputs/converted"),
    _reporting("plan", "plan", "../inputs/model", "--device", "h100"),
    _reporting("reconcile", "reconcile", "../inputs/start.log"),
    _reporting("models", "models"),
    _reporting("families", "families"),
    _reporting("devices", "devices"),
    _reporting("rules", "rules"),
    _reporting("explain", "explain", "gqa", "../inputs/model"),
    _reporting(
        "evaluate",
        *("evaluate", "../inputs/model", "--no-speed", *_TEXT),
        comparable=without_seconds,
    ),
)
SCENARIOS = (*CONVERSIONS, UPTRAINING, *REPORTS)
