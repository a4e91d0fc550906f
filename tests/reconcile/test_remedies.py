"""What is advised is within reach of the memory that the log leaves open, and cures what failed."""

import ast
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.audit.auditing import audit_model
from headcount.cli import main
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import NO_RELEASES
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest
from start_up_lines import out_of_memory, reconcile, rows, too_long, vllm

GIB = 2**30
QWEN = planned(audit_model("qwen3-8b"))
A_TOKEN = 2 * 36 * 8 * 128 * 2  # bytes: K and V of 36 layers of 8 heads of 128, in bfloat16
VERSION = NO_RELEASES.parse("0.10.1")


def plan(**request: object) -> Plan:
    return plan_model(QWEN, PlanRequest(engine="vllm", version=VERSION, **request))  # type: ignore[arg-type]


@pytest.mark.parametrize("says_estimate", [True, False])
@pytest.mark.parametrize("hidden", range(0, 1000, 83))
def test_the_context_that_is_advised_fits_whatever_the_log_rounded(
    hidden: int, says_estimate: bool
) -> None:
    """The engine has 4.395 to 4.405 GiB and logs 4.40; blocks are of 16 tokens."""
    memory = int((4.395 + 0.00001 * (hidden + 1)) * GIB)
    longest = memory // (16 * A_TOKEN) * 16
    error = too_long(36864, "5.06", f"{memory / GIB:.2f}", longest if says_estimate else None)
    found = rows(vllm("0.10.1", "Qwen/Qwen3-8B", 36864, error))
    advised, largest = (found[n]["predicted"] for n in ("change_context", "largest_context"))
    assert advised <= largest <= longest
    assert longest - largest <= 0.01 * GIB / A_TOKEN + 16
    assert plan(kv_memory=memory, context=advised).fits
    assert f"--max-model-len {advised} " in found["change_context"]["why"] + " "


def test_a_command_has_the_published_name_where_the_log_names_no_model() -> None:
    """An alias of the catalogue is no repository that vLLM could load."""
    error = too_long(36864, "5.06", "3.18", None)
    log = vllm("0.10.1", "Qwen/Qwen3-8B", 36864, error)
    bare = "\n".join(line for line in log.splitlines() if "Qwen" not in line)
    why = rows(f"vLLM API server version 0.10.1\n{bare}", "--model", "qwen3-8b")["change_context"]
    assert "vllm serve Qwen/Qwen3-8B --max-model-len" in why["why"]


def test_no_context_is_advised_where_nothing_is_left_at_all() -> None:
    """sglang/srt/model_executor/pool_configurator.py: a pool of no tokens, however short they are
    to be; --mem-fraction-static gives it more."""
    log = (
        "server_args=ServerArgs(model_path='Qwen/Qwen3-8B', context_length=32768, tp_size=1,"
        " mem_fraction_static=0.2)\n"
        "GPU 0: NVIDIA H100\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current"
        " value: mem_fraction_static=0.2\n"
    )
    found = rows(log, "--device", "h100")
    changes = {name for name in found if name.startswith("change_")}
    assert "change_utilisation" in changes
    assert not changes & {"change_context", "change_kv_dtype"}
    assert "largest_context" not in found
    share = found["change_utilisation"]["predicted"]
    other = PlanRequest(engine="sglang", device=find_device("h100"), context=32768)
    now, then = (
        plan_model(QWEN, PlanRequest(**{**_fields(other), "utilisation": n})) for n in (0.2, share)
    )
    assert then.available_bytes - max(0, now.available_bytes) >= then.kv_cache_bytes


def _fields(request: PlanRequest) -> dict[str, object]:
    return {name: getattr(request, name) for name in ("engine", "device", "context")}


def test_a_step_that_is_profiled_has_no_cache_to_give_way() -> None:
    loaded = "INFO Model loading took 15.2683 GiB and 3 seconds"
    error = out_of_memory("0.90 GiB", "22.03 GiB", "0.60 GiB", "21.20 GiB")
    log = vllm("0.10.1", "Qwen/Qwen3-8B", 8192, loaded, error)
    found = rows(log, "--device", "l4")
    changes = {name: row for name, row in found.items() if name.startswith("change_")}
    assert "change_utilisation" not in changes
    few = changes["change_max_num_seqs"]["predicted"]
    device = {"device": find_device("l4"), "context": 8192}
    steps = [
        next(term.bytes for term in plan(**device, **more).taken if term.key == "activations")
        for more in ({"max_num_seqs": 256}, {"max_num_seqs": few})
    ]
    assert few < 256 and steps[0] - steps[1] >= 0.3 * GIB


def test_fewer_sequences_are_advised_as_far_as_the_sampler_needs() -> None:
    """3 GiB for 1,024 sequences, of which 1.1 were free: 375 at most."""
    log = vllm(
        *("0.10.1", "Qwen/Qwen3-8B", 8192),
        "INFO Available KV cache memory: 40.00 GiB",
        out_of_memory("3.00 GiB", "79.18 GiB", "1.10 GiB", "78.00 GiB"),
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy"
        " requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`",
    )
    found = rows(log, "--device", "h100")
    assert found["change_max_num_seqs"]["predicted"] == 256
    assert found["change_utilisation"]["predicted"] <= 0.9 - 1.9 / 79.18


def test_fewer_sequences_are_advised_whose_sampler_has_room_beside_all_else() -> None:
    """No line says what was asked for: 38 B x 1,024 sequences x 151,936 tokens are 5.5 GiB, and a
    tenth of 23.6 is left by the utilisation, as those of 435 sequences take."""
    log = vllm(
        *("0.11.0", "Qwen/Qwen3-8B", 8192),
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy"
        " requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`",
    )
    found = rows(log, "--device", "rtx-4090")
    assert found["change_max_num_seqs"]["predicted"] == 256
    assert "change_max_num_seqs" not in rows(log)  # nor is the device known


@pytest.mark.parametrize("more", ["", "1.16 GiB"])
def test_fewer_sequences_are_advised_where_the_profiled_sampler_found_no_room(more: str) -> None:
    """38 B (of seven logs) x 1,024 sequences x 151,936 tokens are 5.5 GiB, beside weights of 15.3
    on 22 x 0.9: half as many leave room for a request of 8,192 tokens."""
    error = out_of_memory(more, "22.03 GiB", "10.25 MiB", "22.00 GiB") if more else ""
    log = vllm(
        *("0.11.0", "Qwen/Qwen3-8B", 8192),
        "INFO Model loading took 15.2683 GiB and 3 seconds",
        error,
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy"
        " requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`",
    )
    found = rows(log, "--device", "l4")
    assert found["change_max_num_seqs"]["predicted"] == 512
    assert "--max-num-seqs 512" in found["change_max_num_seqs"]["why"]
    assert "in the profiled step" in found["failure"]["why"]
    assert "Activations 5.55 GiB" in " ".join(reconcile(log, "--device", "l4").output.split())
    assert "change_utilisation" not in found


def test_graphs_are_given_up_where_their_capture_failed_and_nowhere_else() -> None:
    lines = (
        "INFO Available KV cache memory: 40.00 GiB",
        '  File "gpu_model_runner.py", line 1, in capture_model',
        out_of_memory("300.00 MiB", "79.18 GiB", "100.00 MiB", "78.90 GiB"),
    )
    found = rows(vllm("0.10.1", "Qwen/Qwen3-8B", 8192, *lines), "--device", "h100")
    assert "--enforce-eager" in found["change_enforce_eager"]["why"]
    assert "the capture of CUDA graphs found no room" in found["failure"]["why"]
    other = (lines[0], lines[1].replace("capture_model", "execute_model"), lines[2])
    found = rows(vllm("0.10.1", "Qwen/Qwen3-8B", 8192, *other), "--device", "h100")
    assert set(found) & {"change_enforce_eager", "change_tp", "change_dtype"} == set()


def test_memory_of_other_processes_is_not_blamed_on_the_weights() -> None:
    error = out_of_memory("1.16 GiB", "79.18 GiB", "0.20 GiB", "20.00 GiB")
    done = reconcile(vllm("0.11.0", "Qwen/Qwen3-8B", 8192, error), "--device", "h100")
    assert "Too large memory that other processes hold" in " ".join(done.output.split())
    assert "other processes hold 58.98 of 79.18 GiB" in " ".join(done.output.split())
    assert "by our reckoning the start fits an empty device" in " ".join(done.output.split())
    assert "Weights of" not in done.output and "Changes, each" not in done.output


@pytest.mark.parametrize(
    ("free", "context", "together"),
    [
        ("21.0", 4096, {"utilisation"}),
        ("18.3", 16384, {"utilisation_and_max_num_seqs", "utilisation_and_context"}),
        ("17.62", 40960, {"utilisation_and_context"}),
    ],
)
def test_what_is_free_is_taken_with_what_else_it_takes(
    free: str, context: int, together: set[str]
) -> None:
    """Of a device of 23.64 GiB that others hold a part of: 15.27 GiB of weights and 1.6 of a step
    leave 0.66 GiB of 0.74 x 23.64, which are 4,800 tokens."""
    error = (
        f"ValueError: Free memory on device ({free}/23.64 GiB) on startup is less than desired GPU"
        " memory utilization (0.9, 21.28 GiB)."
    )
    found = rows(vllm("0.11.0", "Qwen/Qwen3-8B", context, error))
    offered = {n.removeprefix("change_"): row for n, row in found.items() if "change_" in n}
    assert offered.keys() == together
    share = int(float(free) / 23.64 * 100) / 100
    assert all(f"--gpu-memory-utilization {share}" in row["why"] for row in offered.values())
    if context == 40960:
        left = share * 23.64 - 15.27 - 1.43 - 0.13
        words = shlex.split(offered["utilisation_and_context"]["why"].partition("vllm serve")[2])
        advised = int(words[words.index("--max-model-len") + 1])
        assert advised == pytest.approx(left * GIB / A_TOKEN, abs=100)


def test_a_device_that_figures_tell_is_shown_as_the_one_that_was_taken() -> None:
    log = vllm(
        *("0.10.1", "Qwen/Qwen3-8B", 40960),
        "INFO Available KV cache memory: 18.69 GiB",
        "ValueError: No available memory for the cache blocks. Try increasing",
    )
    text = " ".join(reconcile(log).output.split())
    assert "Device NVIDIA A100" in text and "the log names none" in text
    assert "Device not known" not in text


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.7.2", "vllm 0.7.2 is older than 0.8.5, whose rules are used"),
        ("0.41.0", "vllm 0.41.0 is newer than 0.33, whose rules are used"),
    ],
)
def test_a_version_beyond_those_whose_rules_were_read_has_a_note(version: str, words: str) -> None:
    log = vllm(version, "Qwen/Qwen3-8B", 8192, "INFO Available KV cache memory: 18.69 GiB")
    assert words in " ".join(reconcile(log).output.split())


def test_a_folder_counts_logs_and_those_that_were_held_against_something(tmp_path: Path) -> None:
    agreeing = vllm(
        *("0.9.2", "Qwen/Qwen3-8B", 40960),
        "INFO Available KV cache memory: 18.69 GiB",
        "INFO GPU KV cache size: 136,096 tokens",
    )
    unheld = vllm("0.9.2", "Qwen/Qwen3-8B", 8192, "INFO GPU KV cache size: 136,096 tokens")
    (tmp_path / "a.log").write_text(agreeing)
    (tmp_path / "b.log").write_text(unheld)
    (tmp_path / "config.json").write_text("{}")
    args = ["reconcile", str(tmp_path), "--exit-code"]
    done = CliRunner().invoke(main, args)
    assert done.exit_code == 0, done.output
    assert "1 of 2 started as predicted" in done.output
    assert "nothing to hold its figures against" in done.output
    assert "config.json" in done.output.rpartition("No figures that engines log are in")[2]
    listed = json.loads(CliRunner().invoke(main, [*args, "--format", "json"]).output)
    assert listed["schema_version"] == 1
    found = [Path(entry["log"]).name for entry in listed["reconciliations"]]
    assert found == ["a.log", "b.log"]
    named = CliRunner().invoke(main, [*args, str(tmp_path / "config.json")])
    assert named.exit_code == 1 and "not read" in named.output


def test_a_folder_without_a_log_says_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    done = CliRunner().invoke(main, ["reconcile", str(tmp_path)])
    assert done.exit_code == 2
    assert "no file there has figures that engines log" in done.output


def test_changes_of_a_plan_end_at_the_models_longest_context() -> None:
    args = ["plan", "qwen3-8b", "--engine", "vllm", "--kv-memory", "8GiB", "--context", "100k"]
    found = json.loads(CliRunner().invoke(main, [*args, "--format", "json"]).output)["engine"]
    offered = {change["change"]: change["value"] for change in found["changes"]}
    assert not found["fits"] and offered["context"] == 40_960 < found["max_context"]


def test_a_count_that_takes_the_place_of_a_known_one_is_said() -> None:
    args = ["plan", "qwen3-8b", "--device", "h100", "--parameters"]
    said = "9,000,000,000 takes the place of the 8,190,735,360 that are known"
    assert said in " ".join(CliRunner().invoke(main, [*args, "9b"]).output.split())
    assert "takes the place" not in CliRunner().invoke(main, [*args, "8190735360"]).output


def test_weights_that_were_quantised_while_they_loaded_are_so_again() -> None:
    error = too_long(40960, "5.62", "4.40", 32048)
    log = vllm("0.10.1", "Qwen/Qwen3-8B", 40960, error, more=", quantization=fp8")
    found = rows(log)
    commands = [row["why"] for name, row in found.items() if name.startswith("change_")]
    assert commands and all("--quantization fp8" in why for why in commands)
    (offline,) = {
        row["why"].partition(": ")[2] for row in (rows(log, "--offline")["change_context"],)
    }
    call = ast.parse(shlex.split(offline)[2]).body[-1]
    assert 'quantization="fp8"' in offline and isinstance(call, ast.Expr)
    plain = rows(vllm("0.10.1", "Qwen/Qwen3-8B", 40960, error, more=", quantization=None"))
    assert not any("--quantization" in row["why"] for row in plain.values())


SAMPLE = Path(__file__).parents[2] / "docs" / "vllm-startup.log"  # vLLM 0.32 wrote it


def sample(*args: str) -> dict[str, dict[str, object]]:
    done = CliRunner().invoke(main, ["reconcile", str(SAMPLE), *args, "--format", "json"])
    assert done.exit_code == 0, done.output
    return {row["figure"]: row for row in json.loads(done.output)["figures"]}


def test_the_sample_log_is_explained_as_the_engine_says() -> None:
    found = sample()
    assert found["needed_bytes"]["agrees"] is True
    assert found["largest_context"]["logged"] == found["largest_context"]["predicted"] == 9216
    assert "--kv-cache-memory-bytes 1073741824" in str(found["change_context"]["why"])


def test_memory_that_was_told_stays_told_or_is_told_to_be_enough() -> None:
    """28 layers of 8 heads of 128: 4.375 GiB for 40,960 tokens."""
    found = sample("--device", "h100")
    assert {"change_utilisation", "change_max_num_seqs"} & set(found) == set()
    value = found["change_kv_memory"]["predicted"]
    assert isinstance(value, int) and 40960 * 2 * 28 * 8 * 128 * 2 <= value < 4.5 * GIB
    assert f"--kv-cache-memory-bytes {value}" in str(found["change_kv_memory"]["why"])
    assert "change_kv_memory" not in sample("--device", "5GiB")


def test_a_host_s_memory_that_the_log_names_is_offered_to_a_start_that_was_told_less() -> None:
    """A block has 128 tokens on a host, and the null block stands beside the request's 320."""
    found, block = sample(), 128 * 2 * 28 * 8 * 128 * 2
    value = found["change_kv_memory"]["predicted"]
    assert isinstance(value, int) and 321 * block <= value < 321 * block + 2**20
    assert "4.39 GiB for the cache, if so much is free" in str(found["change_kv_memory"]["why"])
    assert list(found)[-3:] == ["change_kv_memory", "change_context", "change_tp"]
    text = SAMPLE.read_text(encoding="utf-8")
    assert "change_kv_memory" not in rows(text.replace("(1.0/23.34)", "(1.0/4.34)"))
    unknown = rows(text.replace("Explicitly set", "Some other words of").replace("on node", "at"))
    assert "if the device has so much" in str(unknown["change_kv_memory"]["why"])
    assert list(unknown)[-1] == "change_kv_memory", "what nothing is known of comes last"


def test_no_device_is_said_of_a_host() -> None:
    done = reconcile(SAMPLE.read_text(encoding="utf-8"))
    assert "Device           not known" in done.output


def test_nothing_is_planned_by_rules_that_give_another_need() -> None:
    """5.62 GiB are what 40,960 tokens of Qwen3-8B take; whatever takes 9 is none of these rules."""
    log = vllm("0.10.1", "Qwen/Qwen3-8B", 40960, too_long(40960, "9.00", "4.40", 20000))
    found = rows(log)
    assert found["needed_bytes"]["agrees"] is False
    assert not [name for name in found if name.startswith("change_")]
    assert (found["largest_context"]["logged"], found["largest_context"]["predicted"]) == (
        20000,
        None,
    )
    assert "5.62 GiB, not 9.00" in found["failure"]["why"]
    assert "20,000 tokens fit, says the engine (--max-model-len 20000" in found["failure"]["why"]


def test_where_nothing_does_that_is_said_and_else_what_was_not_tried() -> None:
    error = "ValueError: No available memory for the cache blocks. Try increasing"
    log = vllm("0.19.0", "meta-llama/Llama-3.1-405B-Instruct", 131072, error)
    small = reconcile(log, "--device", "4GiB")
    assert "none of the single changes does that were tried" in " ".join(small.output.split())
    unknown = reconcile(error + "\n")
    assert "not tried here: a larger share" in " ".join(unknown.output.split())


def test_the_fewest_changes_that_do_together_are_offered_where_none_does_alone() -> None:
    """A request of 40,960 tokens needs 5.63 GiB: beside 15.27 of weights, 19.83 are not enough for
    that and a sampler of any size. In 8 bits it needs half as much."""
    error = out_of_memory("1.16 GiB", "22.03 GiB", "10.25 MiB", "22.00 GiB")
    log = vllm(
        *("0.11.0", "Qwen/Qwen3-8B", 40960),
        "INFO Model loading took 15.2683 GiB and 3 seconds",
        error,
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy"
        " requests. Please try lowering `max_num_seqs` or `gpu_memory_utilization`",
    )
    found = rows(log, "--device", "l4")
    assert not {"change_max_num_seqs", "change_utilisation", "change_context"} & set(found)
    narrower = found["change_max_num_seqs and kv_dtype".replace(" ", "_")]
    assert narrower["predicted"] == "256 and fp8"
    assert "--kv-cache-dtype fp8 --max-num-seqs 256" in narrower["why"]
    device = {"device": find_device("l4"), "context": 40960, "max_num_seqs": 256}
    both = plan(**device, kv_dtype="fp8")
    assert both.fits and not plan(**device).fits
    shorter = found["change_max_num_seqs_and_context"]
    sequences, context = (int(n) for n in shorter["predicted"].split(" and "))
    assert plan(device=find_device("l4"), max_num_seqs=sequences, context=context).fits


def test_a_share_that_leaves_too_little_for_a_request_comes_with_a_shorter_one() -> None:
    """1.15 GiB less for a cache of 5.63 that one request fills."""
    log = vllm(
        *("0.11.0", "Qwen/Qwen3-8B", 40960),
        "INFO Free memory on device (21.8/22.03 GiB) on startup",
        "INFO Model loading took 15.2683 GiB and 3 seconds",
        "INFO Available KV cache memory: 5.63 GiB",
        out_of_memory("1.16 GiB", "22.03 GiB", "10.25 MiB", "22.00 GiB"),
    )
    found = rows(log, "--device", "l4")
    assert "change_utilisation" not in found
    share, context = found["change_utilisation_and_context"]["predicted"].split(" and ")
    assert float(share) <= 0.9 - 1.15 / 22.03
    left = 5.63 - (0.9 - float(share)) * 22.03
    assert int(context) * 36 * 2 * 8 * 128 * 2 <= left * GIB
    assert found["change_utilisation_and_kv_dtype"]["predicted"] == f"{share} and fp8"


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ("", "cuda"),
        ("INFO [__init__.py:216] Automatically detected platform rocm.\n", "rocm"),
    ],
)
def test_the_device_of_a_log_is_one_that_its_engine_runs_on(said: str, wanted: str) -> None:
    """-0.90 GiB beside 27.52 of weights fit a TPU of 32 GiB as well as they do an RTX 5090."""
    from headcount.plan.devices import all_devices

    log = vllm(
        *("0.10.1", "Qwen/Qwen3-14B", 40960),
        "INFO Model loading took 27.5185 GiB and 3 seconds",
        "INFO Available KV cache memory: -0.90 GiB",
    )
    output = " ".join(reconcile(said + log).output.split())
    taken = {device.platform for device in all_devices() if f"Device {device.name}" in output}
    assert taken <= {wanted}
    assert taken or said  # no device of ROCm has so little memory
