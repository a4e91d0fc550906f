"""`import headcount`: what a program gets, and that it costs nothing before it is asked for."""

import dataclasses
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

import headcount
from headcount.cli import COMMANDS, main
from headcount.library.start_options import STARTS, StartOptions

LOG = str(Path(__file__).parents[2] / "docs" / "vllm-startup.log")
# Functions, the result of each on a model of the catalogue, and the command that says the same.
CALLS: dict[str, tuple[Callable[[], headcount.Result], list[str]]] = {
    "audit": (
        lambda: headcount.audit("llama-3-8b", context="8k", kv_dtype="fp8", explain=True),
        ["audit", "llama-3-8b", "--context", "8k", "--kv-dtype", "fp8", "--explain"],
    ),
    "plan": (
        lambda: headcount.plan("llama-3-8b", device="h100", engine="vllm", max_num_seqs=16),
        ["plan", "llama-3-8b", "--device", "h100", "--engine", "vllm", "--max-num-seqs", "16"],
    ),
    "plan without an engine": (
        lambda: headcount.plan("gpt2", context=512, batch_size=4),
        ["plan", "gpt2", "--context", "512", "--batch-size", "4"],
    ),
    "search": (
        lambda: headcount.plan("qwen3-8b", device=["l4", "h100"], target_users=8, context="4k"),
        ["plan", "qwen3-8b", "--device", "l4,h100", "--target-users", "8", "--context", "4k"],
    ),
    "diff": (
        lambda: headcount.diff("gpt2", "llama-3-8b", batch_size=2),
        ["diff", "gpt2", "llama-3-8b", "--batch-size", "2"],
    ),
    "reconcile": (
        lambda: headcount.reconcile(LOG, device="a100-40gb"),
        ["reconcile", LOG, "--device", "a100-40gb"],
    ),
    "models": (lambda: headcount.models("qwen3 8b"), ["models", "--search", "qwen3 8b"]),
    "families": (lambda: headcount.families("gemma"), ["families", "--search", "gemma"]),
    "devices": (lambda: headcount.devices(), ["devices"]),
    "rules": (lambda: headcount.rules(), ["rules"]),
    "explain": (lambda: headcount.explain("gqa", "gpt2"), ["explain", "gqa", "gpt2"]),
    "topics": (lambda: headcount.explain(), ["explain"]),
}
# Arguments of a command that say how its report is shown, or what the exit status is.
_OF_A_TERMINAL = {"form", "output", "details", "wide", "color", "fail_on", "exit_code"}


def printed(arguments: list[str], form: str) -> str:
    result = CliRunner().invoke(main, [*arguments, "--format", form])
    assert result.exit_code in (0, 1), result.stderr
    return result.stdout


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_what_the_command_prints(name: str) -> None:
    call, arguments = CALLS[name]
    result = call()
    assert result.to_json() == printed(arguments, "json")
    assert result.to_markdown() == printed(arguments, "markdown")
    document = json.loads(result.to_json())
    assert result.to_dict() == document
    assert result.schema_version == document["schema_version"] == 1


@pytest.mark.parametrize("name", CALLS)
def test_a_result_is_frozen_and_short_in_an_interpreter(name: str) -> None:
    result = CALLS[name][0]()
    first = dataclasses.fields(result)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, first, None)
    assert len(repr(result)) < 1500 and "Report(" not in repr(result)
    assert str(result).startswith(result.report.title.split(" ")[0])


def test_an_audit_has_the_published_numbers() -> None:
    """GPT-2 small: 124M parameters, 12 layers of 12 heads of 64 (Radford et al., 2019)."""
    result = headcount.audit("gpt2")
    assert result.parameters == 124_439_808 and result.model_type == "gpt2"
    assert len(result.layers) == 12
    (mixer,) = result.layers[0].mixers
    assert (mixer.heads, mixer.num_attention_heads, mixer.head_dim) == ("MHA", 12, 64)
    # 2 x 12 layers x 768 x 2 bytes a token
    assert result.cache_bytes_per_token == 2 * 12 * 768 * 2
    assert result.cache_bytes == 1024 * result.cache_bytes_per_token
    assert sum(layer.cache_bytes for layer in result.layers) == result.cache_bytes


def test_findings_are_a_gate(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}
    config |= {"num_hidden_layers": 1, "vocab_size": 32, "intermediate_size": 64}
    (tmp_path / "config.json").write_text(json.dumps({**config, "bos_token_id": 77}))
    result = headcount.audit(tmp_path)
    assert [(f.code, f.severity) for f in result.findings_from("warning")] == [("H504", "warning")]
    assert result.findings_from("error") == ()
    assert len(result.findings) > 1 and result.findings_from("note") == result.findings
    assert headcount.audit(tmp_path, ignore=["H504"]).findings_from("warning") == ()
    with pytest.raises(headcount.HeadcountError, match="severity 'fatal'"):
        result.findings_from("fatal")  # type: ignore[arg-type]


def test_a_plan_says_whether_it_holds() -> None:
    result = headcount.plan("llama-3-70b", device="h100", require="fits", context=8192)
    assert result.engine == "vllm" and result.device == "h100"
    assert result.fits is False and not result.holds
    assert result.reasons and "fits" in result.reasons[0]
    assert result.free_bytes is not None and result.free_bytes < 0
    small = headcount.plan("gpt2", device=40 * 2**30)
    assert small.fits and small.holds and small.engine is None and small.launch_command is None
    assert small.total_bytes is not None and small.total_bytes > (small.weights_bytes or 0) > 0


def test_a_diff_names_what_differs() -> None:
    result = headcount.diff("gpt2", "llama-3-8b")
    assert not result.same and (result.a, result.b) == (
        "openai-community/gpt2",
        "meta-llama/Meta-Llama-3-8B",
    )
    assert (result.model["layers"].a, result.model["layers"].b) == (12, 32)
    assert result.layers[0].fields["num_key_value_heads"].b == 8
    assert headcount.diff("gpt2", "gpt2").same


def test_a_log_of_a_failed_start_is_explained() -> None:
    result = headcount.reconcile(LOG, device="a100-40gb")
    assert not result.agrees
    assert {figure.figure for figure in result.figures} >= {"failure", "largest_context"}
    (one,) = result.logs
    assert one.figures == result.figures and one.engine.startswith("vllm")
    several = headcount.reconcile(LOG, LOG, __file__, device="a100-40gb")
    assert [len(log.figures) for log in several.logs] == [*[len(one.figures)] * 2, 0]
    assert several.logs[2].error and not several.agrees


def test_lists_hold_what_is_known() -> None:
    found = headcount.models()
    gpt2 = next(model for model in found.models if model.id == "openai-community/gpt2")
    assert gpt2.parameters == 124_439_808 and gpt2.auditable and "gpt2" in gpt2.aliases
    assert len(found.models) == len(found.to_dict()["models"]) > 300
    assert headcount.models("no such thing").models == ()
    (h100,) = (device for device in headcount.devices().devices if device.key == "h100")
    assert h100.vendor == "NVIDIA" and h100.usable_memory < h100.memory == 80 * 2**30
    (gpt2_family,) = (
        one for one in headcount.families("gpt2").families if one.model_type == "gpt2"
    )
    assert gpt2_family.mixers == ("attention",) and gpt2_family.bias == "always / always"
    by_code = {rule.code: rule for rule in headcount.rules().rules}
    assert by_code["H101"].severity == "error" and by_code["H101"].reads == "headers"


def test_a_topic_is_explained_with_a_models_numbers() -> None:
    """A token of GPT-2's cache: 2 x 12 layers x 768 x 2 bytes."""
    page = headcount.explain("cache", "gpt2")
    assert page.id == "openai-community/gpt2" and page.applies and page.sources
    assert 2 * 12 * 768 * 2 in [one.value for one in page.sums]
    topics = headcount.explain()
    assert topics.topic is None and {*topics.questions} > {"mha", "gqa", "mla"}
    assert page.questions.items() <= topics.questions.items()


def test_schemas_are_those_of_the_command() -> None:
    assert headcount.schema("audit") == json.loads(
        CliRunner().invoke(main, ["schema", "audit"]).stdout
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: headcount.explain("everything"),
        lambda: headcount.explain("gqa", "no-such-model"),
        lambda: headcount.models(""),
        lambda: headcount.schema("nothing"),
        lambda: headcount.audit("no-such-model"),
        lambda: headcount.audit(""),
        lambda: headcount.audit("a\0b"),
        lambda: headcount.audit(7),  # type: ignore[arg-type]
        lambda: headcount.audit("gpt2", context=-3),
        lambda: headcount.audit("gpt2", context="many"),
        lambda: headcount.audit("gpt2", context=True),
        lambda: headcount.audit("gpt2", batch_size=0),
        lambda: headcount.audit("gpt2", batch_size="4"),  # type: ignore[arg-type]
        lambda: headcount.audit("gpt2", kv_dtype="quarter"),
        lambda: headcount.audit("gpt2", select=["X9"]),
        lambda: headcount.diff("gpt2", "no-such-model"),
        lambda: headcount.plan("gpt2", engine="steam"),
        lambda: headcount.plan("gpt2", device="toaster"),
        lambda: headcount.plan("gpt2", device=-5),
        lambda: headcount.plan("gpt2", tp=0),
        lambda: headcount.plan("gpt2", utilisation=float("nan")),
        lambda: headcount.plan("gpt2", device="h100", engine="vllm", n_cpu_moe=2),
        lambda: headcount.plan("gpt2", device="h100", engine="vllm", cpu_offload_gb=-1),
        lambda: headcount.plan("gpt2", engine="vllm", sampler="dice"),  # type: ignore[arg-type]
        lambda: headcount.plan("gpt2", engine="vllm", enforce_eager=1),  # type: ignore[arg-type]
        lambda: headcount.plan("gpt2", engine="vllm", speculative_config="{"),
        lambda: headcount.reconcile("no-such.log"),
    ],
)
def test_every_error_is_of_one_class(call: Callable[[], object]) -> None:
    with pytest.raises(headcount.HeadcountError) as caught:
        call()
    assert str(caught.value) and "\0" not in str(caught.value)


def test_an_unknown_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="max_num_sequences"):
        headcount.plan("gpt2", max_num_sequences=4)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="log"):
        headcount.reconcile()


def arguments_of(name: str) -> set[str]:
    parameters = inspect.signature(getattr(headcount, name)).parameters
    arguments = {*parameters} - {"start", "progress"}
    return arguments | ({*StartOptions.__annotations__} if "start" in parameters else set())


def options_of(name: str, called: Mapping[str, str]) -> set[str]:
    """By the names that the library has for them."""
    options = {called.get(p.name or "", p.name or "") for p in COMMANDS[name].params}
    return options - _OF_A_TERMINAL


@pytest.mark.parametrize(
    "name",
    [
        *("audit", "plan", "diff", "reconcile", "evaluate", "heads", "uptrain", "explain"),
        *("models", "families", "devices", "rules"),
    ],
)
def test_arguments_are_those_of_the_command(name: str) -> None:
    called = {"models": "model", "texts": "text", "words": "search"}
    assert arguments_of(name) == options_of(name, called)


def test_what_convert_does_is_split_in_functions() -> None:
    """Its options are those of what it does: convert, sweep, verify, convertibles; and evaluate,
    which is a function of its own."""
    called = {"formats": "format", "checks": "check", "budget": "max_delta_loss"}
    options = options_of("convert", called)
    assert {"families", "evaluates", "verified"} < options
    ours = arguments_of("convert") | arguments_of("sweep") | arguments_of("verify")
    assert options - {"families", "evaluates", "verified"} - ours == {
        *("behaviour", "roles", "speed")  # of evaluate
    }
    assert ours <= options


def test_every_start_option_is_checked() -> None:
    assert {*STARTS} == {*StartOptions.__annotations__}


def test_the_choices_of_literals_are_those_of_the_command() -> None:
    for option in COMMANDS["plan"].params:
        if isinstance(option.type, click.Choice) and option.name in STARTS:
            for choice in option.type.choices:
                assert STARTS[option.name](option.name, choice) == choice


FIRST = """
import sys
import headcount
assert {name for name in sys.modules if name.startswith("headcount")} == {
    "headcount", "headcount.model", "headcount.model.version"}, sorted(sys.modules)
assert headcount.__version__
result = headcount.audit("gpt2")
assert headcount.audit("gpt2").parameters == result.parameters
from headcount.audit.auditing import audit_model
import headcount.audit as room
assert room is headcount.audit and room.audit_model is audit_model
assert room("gpt2").cache_bytes == result.cache_bytes
from headcount import plan, diff, HeadcountError
assert plan("gpt2").id == diff("gpt2", "gpt2").a
heavy = {"torch", "transformers", "numpy", "click", "huggingface_hub"} & sys.modules.keys()
assert not heavy, heavy
try:
    headcount.nothing
except AttributeError as error:
    assert "nothing" in str(error)
else:
    raise AssertionError
"""
ROOM_FIRST = """
import headcount.plan, headcount.heads, headcount.audit.auditing
assert headcount.plan("gpt2").id
assert headcount.audit("gpt2").id
import importlib
importlib.reload(headcount.plan)
assert headcount.plan("gpt2").id
"""


@pytest.mark.parametrize("program", [FIRST, ROOM_FIRST])
def test_importing_loads_nothing_and_rooms_are_functions_too(program: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there_and_documented() -> None:
    for name in headcount.__all__:
        found: Any = getattr(headcount, name)
        assert name in dir(headcount)
        if name != "__version__":
            assert inspect.getdoc(found), name


def test_the_signature_is_that_of_the_function() -> None:
    assert "kv_dtype" in inspect.signature(headcount.audit).parameters
    assert "num_key_value_heads" in inspect.signature(headcount.convert).parameters


def test_a_notebook_shows_a_table_and_escapes_what_a_model_says(tmp_path: Path) -> None:
    from html.parser import HTMLParser

    config = {"model_type": "<script>alert(1)</script>", "hidden_size": 64}
    config |= {"num_attention_heads": 4, "num_hidden_layers": 1, "vocab_size": 32}
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}))
    shown = headcount.audit(tmp_path)._repr_html_()
    tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.append(tag)

    Reader().feed(shown)
    assert "table" in tags and "&lt;script&gt;" in shown
    assert {*tags} <= {"div", "p", "strong", "table", "thead", "tbody"} | {
        *("tr", "th", "td", "ul", "li", "pre")
    }


def test_a_result_is_printed_in_lines_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    result = headcount.audit("deepseek-v3")
    assert max(map(len, str(result).splitlines())) > 80
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, str(result).splitlines())) <= 80
