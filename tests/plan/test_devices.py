"""The table of accelerators: its own consistency, published figures, and looking devices up."""

import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from itertools import groupby

import pytest

from headcount.model.errors import HeadcountError
from headcount.plan.devices import Device, all_devices, find_device, parse_device

GIB = 2**30
MIB = 2**20
DEVICES = all_devices()
IDS = [device.key for device in DEVICES]

# Typed by hand: key, what a framework or the CUDA driver shows in bytes, bytes per second, dense
# BF16/FP16 FLOP/s, source. None: the source does not give that figure.
PUBLISHED = [
    # llm-d-planner docs/empirical-vllm-memory-results.md: 79.18 GiB. NVIDIA H100 data sheet (SXM):
    # 3.35 TB/s, 1,979 TFLOP/s with sparsity.
    ("h100", 79.18 * GIB, 3.35e12, 1979e12 / 2),
    # bottlerocket-os/bottlerocket PR 3873, deviceQuery of an A100-SXM4-40GB: 42298834944 bytes.
    # NVIDIA A100 data sheet: 1,555 GB/s, 312 TFLOP/s.
    ("a100-40gb", 42298834944, 1555e9, 312e12),
    # lianqi1008/Control-GIC issue 6, an A100: 79.14 GiB. NVIDIA A100 data sheet: 2,039 GB/s.
    ("a100-80gb", 79.14 * GIB, 2039e9, 312e12),
    # Zheng-Chong/CatVTON issue 133: 14.56 GiB. NVIDIA T4 data sheet: 320 GB/s, 65 TFLOP/s.
    ("t4", 14.56 * GIB, 320e9, 65e12),
    # ali-vilab/VGen issue 104: 23.64 GiB. NVIDIA Ada white paper: 1,008 GB/s, 165.2 TFLOP/s.
    ("rtx-4090", 23.64 * GIB, 1008e9, 165.2e12),
    # TrajectoryCrafter issue 20: 31.36 GiB. NVIDIA RTX Blackwell white paper: 1,792 GB/s, 209.5.
    ("rtx-5090", 31.36 * GIB, 1792e9, 209.5e12),
    # antirez/ds4 issue 431: 94.97 GiB. NVIDIA RTX PRO Blackwell white paper: 1,792 GB/s, 503.8.
    ("rtx-pro-6000", 94.97 * GIB, 1792e9, 503.8e12),
    # A vLLM log with 139.8 GiB. NVIDIA H200 data sheet: 4.8 TB/s, 1,979 TFLOP/s with sparsity.
    ("h200", 139.8 * GIB, 4.8e12, 1979e12 / 2),
    # Tencent-Hunyuan/HunyuanCustom issue 36, eight L20: 44.53 GiB. NVIDIA L20 data sheet: 864 GB/s,
    # 119.5 TFLOP/s dense.
    ("l20", 44.53 * GIB, 864e9, 119.5e12),
    # tile-ai/TileOPs PR 1658, a profile of the 141 GB card: 4.8 TB/s, 148 TFLOP/s dense.
    ("h20-141gb", None, 4.8e12, 148e12),
    # pytorch/ao PR 4002: 178.35 (2^30). pytorch/pytorch PR 193471, quoting NVIDIA's data sheet of
    # HGX B200: 7,700 GB/s, 2,250 TFLOP/s dense.
    ("b200", 178.35 * GIB, 7.7e12, 2250e12),
    # A vLLM log with 191.69 GiB. AMD MI300X data sheet: 5.3 TB/s, 1,307.4 TFLOP/s.
    ("mi300x", 191.69 * GIB, 5.3e12, 1307.4e12),
    # https://docs.cloud.google.com/tpu/docs/v6e: 1638 GB/s, 918 TFLOP/s.
    ("tpu-v6e", None, 1638e9, 918e12),
]
# Typed by hand, of a whole card or chip: as many devices as it is to a framework, memory, bytes per
# second, dense FLOP/s, source.
CARDS = [
    # AMD Instinct MI250X data sheet: 128 GB, 3.2 TB/s, 383 TFLOP/s; two GCDs.
    ("mi250x", 2, 128 * GIB, 3.2e12, 383e12),
    # Intel Data Center GPU Max 1550: 128 GB, 3,276.8 GB/s; two stacks.
    ("max-1550", 2, 128 * GIB, 3276.8e9, 838.8e12),
    # https://awsdocs-neuron.readthedocs-hosted.com, Inferentia2: 32 GiB, 820 GB/s, 190 TFLOP/s.
    ("inferentia2", 2, 32 * GIB, 820e9, 190e12),
    ("trainium", 2, 32 * GIB, 820e9, 190e12),
    # The same, Trainium2: 96 GiB, 2.9 TB/s, 667 TFLOP/s; 4 logical cores, "approximately 24 GiB of
    # HBM per rank" (training/best-practices.html).
    ("trainium2", 4, 96 * GIB, 2.9e12, 667e12),
]

# nvidia-smi's totals, which include what the driver keeps (modal-labs/modal-client PR 2797): MiB.
NVIDIA_SMI = {"h100": 81559, "a100-80gb": 81920, "a100-40gb": 40960, "a10": 23028}
NVIDIA_SMI |= {"l40s": 46068, "l4": 23034, "t4": 15360}


def test_the_table_is_as_wide_as_promised() -> None:
    assert len(DEVICES) >= 40
    assert {device.vendor for device in DEVICES} == {
        *("NVIDIA", "AMD", "Intel", "Google", "AWS", "Apple")
    }


def test_no_name_means_two_devices() -> None:
    seen: dict[str, str] = {}
    for device in DEVICES:
        for name in (device.key, *device.aliases):
            plain = name.lower().replace("-", "")
            assert plain not in seen, f"{name} of {device.key} is {seen[plain]} already"
            seen[plain] = device.key
    assert len({device.name for device in DEVICES}) == len(DEVICES)


def test_every_key_alias_and_name_finds_its_device() -> None:
    for device in DEVICES:
        for name in (device.key, device.name, *device.aliases):
            assert find_device(name) is device


def test_order_is_vendor_then_memory() -> None:
    vendors = [vendor for vendor, _ in groupby(device.vendor for device in DEVICES)]
    assert len(vendors) == len(set(vendors))
    for _, group in groupby(DEVICES, key=lambda device: device.vendor):
        memory = [device.memory for device in group]
        assert memory == sorted(memory)


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_figures_are_plausible(device: Device) -> None:
    share = device.usable_memory / device.memory
    # A driver keeps a few per cent, ECC in GDDR6 another sixteenth; macOS leaves the GPU 75 %.
    assert share == 0.75 if device.vendor == "Apple" else 0.9 < share <= 1
    assert device.memory % GIB == 0
    assert device.bandwidth is not None
    assert 100e9 <= device.bandwidth <= 10e12
    assert device.flops is None or 15e12 <= device.flops <= 3e15
    assert device.usable_source
    assert device.source
    for figure in (device.memory, device.usable_memory, device.bandwidth):
        assert type(figure) is int
    assert device.flops is None or type(device.flops) is int


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_the_name_states_the_nominal_memory(device: Device) -> None:
    assert f"{device.memory // GIB}GB" in device.name


@pytest.mark.parametrize(("key", "usable", "bandwidth", "flops"), PUBLISHED)
def test_published_figures(key: str, usable: float | None, bandwidth: float, flops: float) -> None:
    device = find_device(key)
    if usable is not None:
        assert device.usable_memory == pytest.approx(usable, abs=MIB)
    assert device.bandwidth == pytest.approx(bandwidth)
    assert device.flops == pytest.approx(flops, rel=1e-3)


@pytest.mark.parametrize(("key", "count", "memory", "bandwidth", "flops"), CARDS)
def test_a_device_is_what_a_framework_sees_of_a_card(
    key: str, count: int, memory: int, bandwidth: float, flops: float
) -> None:
    device = find_device(key)
    assert device.per_card == count
    assert device.memory * count == memory
    assert device.bandwidth is not None and device.flops is not None
    assert device.bandwidth * count == pytest.approx(bandwidth)
    assert device.flops * count == pytest.approx(flops)


def test_all_others_are_whole_cards() -> None:
    known = {key for key, *_ in CARDS}
    assert {device.key for device in DEVICES if device.per_card > 1} == known


@pytest.mark.parametrize("key", NVIDIA_SMI)
def test_a_framework_sees_less_than_nvidia_smi(key: str) -> None:
    kept = NVIDIA_SMI[key] * MIB - find_device(key).usable_memory
    assert 0.3 * GIB < kept < 2 * GIB


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("H100", "h100"),
        ("  nvidia h100 ", "h100"),
        ("nvidia-H100", "h100"),
        ("a100_80gb", "a100-80gb"),
        ("4060 Ti 16GB", "rtx-4060-ti-16gb"),
        ("Intel Gaudi 3", "gaudi-3"),
        # What torch.cuda.get_device_name says.
        ("AMD Instinct MI250X/MI250", "mi250x"),
        ("mi250x-gcd", "mi250x"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_names_as_people_and_drivers_write_them(name: str, key: str) -> None:
    assert find_device(name).key == key


@pytest.mark.parametrize(
    ("name", "offered"),
    [("h101", "h100"), ("rtx4060ti", "rtx-4060-ti-16gb"), ("m3 max", "m3-max-64gb")],
)
def test_an_unknown_name_offers_the_nearest(name: str, offered: str) -> None:
    with pytest.raises(HeadcountError) as caught:
        find_device(name)
    first, second = str(caught.value).splitlines()
    assert repr(name) in first
    assert offered in first
    assert "80GiB" in second


@pytest.mark.parametrize("name", ["", "  ", "nvidia", "~~~", "a quantum computer"])
def test_a_hopeless_name_is_refused_without_offers(name: str) -> None:
    with pytest.raises(HeadcountError, match="no device is named") as caught:
        parse_device(name)
    assert "nearest" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GiB", 80 * GIB), ("24GB", 24 * 10**9), (" 1.5 tib ", 3 * 2**39), ("512MiB", 512 * MIB)],
)
def test_a_size_is_a_device_without_speed(text: str, size: int) -> None:
    device = parse_device(text)
    assert (device.memory, device.usable_memory) == (size, size)
    assert (device.bandwidth, device.flops, device.aliases) == (None, None, ())
    assert device not in DEVICES


def test_parse_device_takes_names_too() -> None:
    assert parse_device("h100") is find_device("h100")
    assert parse_device("4090").key == "rtx-4090"  # not a size of 4,090 bytes


@pytest.mark.parametrize("text", ["0GiB", "1.2.3GB", "99999999999TB"])
def test_an_impossible_size_is_refused(text: str) -> None:
    with pytest.raises(HeadcountError, match="is not a size"):
        parse_device(text)


def test_devices_are_frozen_and_checked() -> None:
    device = find_device("h100")
    with pytest.raises(FrozenInstanceError):
        device.memory = 1  # type: ignore[misc]
    with pytest.raises(ValueError, match="usable_memory"):
        replace(device, usable_memory=device.memory + 1)


def test_importing_reads_no_table_and_no_difflib() -> None:
    program = (
        "import sys; from headcount.plan import devices;"
        "print('difflib' in sys.modules, devices.all_devices.cache_info().currsize)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["False", "0"], run.stderr
