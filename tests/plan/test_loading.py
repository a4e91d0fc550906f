"""Weights that lie on a device at 16 bit before the engine quantises them.

"Currently, we load the model at original precision before quantizing down to 8-bits, so you need
enough memory to load the whole model" (vLLM's page on FP8 W8A8). Since 0.16 its layers lie on the
meta device until their last weight is there (uses_meta_device); SGLang 0.5.23 quantises once all
are loaded (load_weights_and_postprocess).
"""

import pytest

from plan_runs import document, engine, run

GIB = 2**30
# Qwen3-32B has 32,762,123,264 parameters: 61.02 GiB at 16 bit, of which a half goes to 8; an L40S
# shows 44.39 GiB.
WHOLE = 2 * 32_762_123_264
ARGS = ("qwen3-32b", "--device", "l40s", "--context", "2k", "--max-num-seqs", "64")
SGLANG = ("qwen3-32b", "--device", "l40s", "--context", "2k", "--engine", "sglang")


@pytest.mark.parametrize(
    ("version", "whole"),
    [("0.8.5", True), ("0.12.0", True), ("0.15.0", True), ("0.16.0", False), ("0.32.0", False)],
)
def test_fp8_made_while_loading_wants_room_for_16_bit_until_0_16(version: str, whole: bool) -> None:
    found = document(*ARGS, "--dtype", "fp8", "--engine-version", version)
    assert found["verdict"] == ("does not fit" if whole else "fits")
    assert found["memory"]["free_bytes"] > 0  # once it is loaded
    loading = found["memory"]["loading_bytes"]
    if not whole:
        assert loading is None
        return
    assert WHOLE < loading < WHOLE + GIB
    assert found["fits"] is False and found["engine"]["limiting_term"] == "loading"
    assert (found["limits"]["max_context"], found["limits"]["max_batch_size"]) == (0, 0)


def test_each_of_two_devices_loads_its_half() -> None:
    args = (*ARGS, "--dtype", "fp8", "--engine-version", "0.15.0", "--tp", "2")
    found = document(*args)
    assert WHOLE / 2 < found["memory"]["loading_bytes"] < WHOLE / 2 + GIB
    assert found["verdict"] == "fits"
    moved = document(*args[:-2], "--cpu-offload-gb", "24")
    assert moved["memory"]["loading_bytes"] == pytest.approx(WHOLE - 24 * GIB, abs=GIB)


def test_sglang_makes_8_bits_of_all_weights_at_once() -> None:
    """Llama-3-70B has 70,553,706,496 parameters; an RTX PRO 6000 shows 94.97 GiB."""
    found = document(*SGLANG, "--dtype", "fp8")
    assert WHOLE < found["memory"]["loading_bytes"] < WHOLE + GIB
    assert found["verdict"] == "does not fit"
    larger = ("llama-3-70b", "--device", "rtx-pro-6000", *SGLANG[3:], "--dtype", "mxfp8")
    found = document(*larger)
    assert 2 * 70_553_706_496 < found["memory"]["loading_bytes"] < 2 * 70_553_706_496 + GIB
    assert found["verdict"] == "does not fit" and found["memory"]["free_bytes"] > 0
    each = document(*SGLANG, "--dtype", "nf4")
    assert (each["memory"]["loading_bytes"], each["verdict"]) == (None, "fits")


def test_no_gate_passes_and_no_change_is_offered_that_does_not_load() -> None:
    result = run(*ARGS, "--dtype", "fp8", "--engine-version", "0.15.0", "--require", "fits")
    assert result.exit_code == 1
    assert "short while the weights load" in result.stdout
    gate = ("--require", "concurrency>=1", "--engine-version", "0.15.0")
    assert run(*ARGS, "--dtype", "fp8", *gate).exit_code == 1
    for version, offered in (("0.15.0", False), ("0.16.0", True)):
        changes = engine(*ARGS, "--engine-version", version)["changes"]
        assert any(n["value"] == "float8_e4m3fn" for n in changes) is offered


def test_a_search_takes_devices_that_hold_the_weights_at_16_bit() -> None:
    args = ("qwen3-32b", "--dtype", "fp8", "--context", "2k", "--target-users", "4")
    args = (*args, "--device", "l40s", "--max-num-seqs", "64", "--engine-version")
    assert [engine(*args, v)["devices"] for v in ("0.15.0", "0.16.0")] == [2, 1]


def test_files_that_are_quantised_already_load_as_they_are() -> None:
    args = ("--device", "h100", "--tp", "4", "--engine-version", "0.15.0", "--context", "2k")
    stored = document("minimax-m2", "--dtype", "fp8", *args)
    assert stored["memory"]["loading_bytes"] is None
    awq = document(*ARGS, "--dtype", "awq", "--engine-version", "0.15.0")
    assert (awq["memory"]["loading_bytes"], awq["verdict"]) == (None, "fits")
