"""The catalogue: found by any name, complete, and saying where its figures are from."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from headcount.audit import audit_model
from headcount.audit.audit_report import audit_report
from headcount.model.errors import HeadcountError, UnknownModelError
from headcount.model.sizes import AuditRequest
from headcount.sources import catalogue
from headcount.sources.catalogue import CatalogueRow, find_row, read_entry, search_catalogue
from headcount.sources.target import resolve
from truth_record import key_of, recorded

ROWS = catalogue.catalogue()
FOLDER = Path(catalogue.__file__).parent


def test_the_index_is_that_of_the_models() -> None:
    lines = (FOLDER / "models.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == len(ROWS) == 381
    assert [row.id for row in ROWS] == sorted((row.id for row in ROWS), key=str.lower)
    for row in ROWS:
        entry = read_entry(row)
        assert (entry.id, entry.aliases, entry.config_of) == (row.id, row.aliases, None)
        assert row.parameters
        assert entry.built_parameters in (None, row.parameters)
        assert entry.sources, "every config says where it is from"


def test_no_name_is_given_twice() -> None:
    names = [name.casefold() for row in ROWS for name in row.names]
    assert len(set(names)) == len(names)


def test_no_name_without_its_organisation_means_two_models() -> None:
    meant: dict[str, set[str]] = {}
    for row in ROWS:
        for name in row.names:
            meant.setdefault(name.casefold().rpartition("/")[2], set()).add(row.id)
    assert {name: ids for name, ids in meant.items() if len(ids) > 1} == {}


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "LLAMA-3-8B", "meta-llama/meta-llama-3-8b", "meta-llama-3-8B"]
)
def test_names_are_case_insensitive_and_need_no_organisation(name: str) -> None:
    row = find_row(name)
    assert row is not None
    assert row.id == "meta-llama/Meta-Llama-3-8B"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("kimi-k3", "moonshotai/Kimi-K3"),
        ("kimi-k2.6", "moonshotai/Kimi-K2.6"),
        ("kimi-k2.5", "moonshotai/Kimi-K2.5"),
        ("glm-5", "zai-org/GLM-5"),
        ("glm-5.1-fp8", "zai-org/GLM-5.1-FP8"),
        ("glm-5.3", "zai-org/GLM-5.3"),
        ("minimax-m3", "MiniMaxAI/MiniMax-M3"),
        ("nemotron-3-super", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-BF16"),
        ("qwen3.6-27b", "Qwen/Qwen3.6-27B"),
        ("gemma-4-12b", "google/gemma-4-12B-it"),
        ("step-3.7-flash", "stepfun-ai/Step-3.7-Flash"),
        ("deepseek-v4-pro-nvfp4", "nvidia/DeepSeek-V4-Pro-NVFP4"),
        ("mimo-v2.5-pro", "XiaomiMiMo/MiMo-V2.5-Pro"),
        ("qwen1.5-7b-chat", "Qwen/Qwen1.5-7B"),
        ("llama-3.1-8b-instruct", "meta-llama/Llama-3.1-8B"),
    ],
)
def test_names_that_people_type(name: str, model: str) -> None:
    row = find_row(name)
    assert row is not None and row.id == model


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        # Their own config.json; a converter's had 512
        ("mistral-7b-v0.2", 32_768),
        ("qwen-1_8b", 8_192),
        ("qwen1.5-1.8b", 32_768),
        ("chatglm2-6b", 32_768),
        # Where the class of transformers has 2,048
        ("olmo-3-7b", 65_536),
        ("olmo-3-32b", 65_536),
        ("deepseek-coder-6.7b", 16_384),
        ("deepseek-coder-1.3b", 16_384),
        ("exaone-4.0-32b", 131_072),
    ],
)
def test_the_longest_text_is_that_of_the_model(name: str, longest: int) -> None:
    assert audit_model(name).spec.max_position_embeddings == longest


@pytest.mark.parametrize(
    ("name", "title"),
    [
        (
            "gemma-2-9b",
            "google/gemma-2-9b (gemma2, 9.24 B parameters, float32; from the catalogue)",
        ),
        (
            "gemma-2-9b-it",
            "google/gemma-2-9b-it (gemma2, 9.24 B parameters, bfloat16; from the catalogue, by the"
            " config of google/gemma-2-9b)",
        ),
        (
            "google/gemma-2-2b-it",
            "google/gemma-2-2b-it (gemma2, 2.61 B parameters, bfloat16; from the catalogue, by the"
            " config of google/gemma-2-2b)",
        ),
        (
            "olmo-2-1124-7b-instruct",
            "allenai/OLMo-2-1124-7B-Instruct (olmo2, 7.30 B parameters, bfloat16; from the"
            " catalogue, by the config of allenai/OLMo-2-1124-7B)",
        ),
    ],
)
def test_a_checkpoint_has_its_own_dtype(name: str, title: str) -> None:
    """The -it models are published in bfloat16: 17.2 GiB of weights, not 34.4. OLMo's files hold
    14,597,276,128 bytes: two for each of 7,298,617,344 parameters, and their headers."""
    report = audit_report(audit_model(name), AuditRequest())
    assert report.title == title
    stands_in = title.rpartition("by the config of ")[2].rstrip(")") if "by the" in title else None
    model: Any = report.document["model"]
    assert model["config_of"] == stands_in


def test_a_checkpoint_whose_config_is_not_known_says_so() -> None:
    audit = audit_model("allenai/OLMo-2-0325-32B-Instruct")
    assert audit.source.id == "allenai/OLMo-2-0325-32B-Instruct"
    notes = " ".join(audit_report(audit, AuditRequest()).notes)
    assert "lacks the config of allenai/OLMo-2-0325-32B-Instruct" in notes


def test_every_checkpoint_is_read() -> None:
    for row in ROWS:
        for name in row.checkpoints:
            entry = read_entry(row, name)
            assert (entry.id, entry.config_of) == (name, row.id)
            assert audit_model(name).spec.layers


def test_search_takes_words_in_any_order() -> None:
    found = {row.id for row in search_catalogue("8b qwen3")}
    assert "Qwen/Qwen3-8B" in found
    assert all("qwen3" in row.id.casefold() for row in search_catalogue("qwen3 instruct"))
    assert search_catalogue("no such model") == ()


def test_models_whose_names_begin_with_the_word_are_found_first() -> None:
    found = [row.id for row in search_catalogue("qwen")]
    theirs, others = found.index("Qwen/Qwen3-8B"), found.index("nvidia/Qwen3-235B-A22B-NVFP4")
    assert theirs < others < found.index("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")
    assert "meta-llama/" in search_catalogue("llama 3.1 8b")[0].id
    assert len(search_catalogue("")) > 300


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownModelError, match="llama-3-8b"):
        audit_model("lama-3-8b")


@pytest.mark.parametrize(
    "name",
    [
        "Qwen2.5-32B-Instruct-Q4_K_M.gguf",
        "./no/such/folder/Qwen2.5-32B.Q4_K_M.gguf",
        "qwen2.5-32b:q4_k_m",
        "someone/Qwen2.5-32B-Instruct-GGUF:Q4_K_M",
    ],
)
def test_a_quantised_file_that_is_not_there_says_how_its_model_is_planned(name: str) -> None:
    with pytest.raises(HeadcountError, match=r"headcount plan qwen2\.5-32b --dtype q4_k_m"):
        resolve(name)


@pytest.mark.parametrize("name", ["foo-q4_k_m.gguf", "gpt2-fp16", "qwen2.5-32x:q4_k_m"])
def test_no_advice_is_made_up_for_others(name: str) -> None:
    with pytest.raises(HeadcountError) as raised:
        resolve(name)
    assert "--dtype" not in str(raised.value)


def test_published_counts_that_differ_are_explained() -> None:
    unexplained = [
        row.id
        for row in ROWS
        if (entry := read_entry(row)).published_parameters and entry.built_parameters
        if entry.published_parameters != entry.built_parameters and not entry.notes
    ]
    assert unexplained == []


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_every_model_is_audited(row: CatalogueRow) -> None:
    spec = audit_model(row.id).spec
    assert spec.layers
    assert spec.parameters
    assert spec.attention_parameters < spec.parameters


@pytest.fixture
def check_catalogue() -> Iterator[ModuleType]:
    """The script of tools/."""
    path = Path(__file__).parents[2] / "tools" / "check_catalogue.py"
    spec = importlib.util.spec_from_file_location("check_catalogue", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with mock.patch.object(sys, "path", list(sys.path)):
        spec.loader.exec_module(module)
        yield module


def test_the_check_prints_a_row_for_each_model(
    check_catalogue: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["check_catalogue.py", "--recorded", "gpt2", "gemma-2-2b-it", "kimi-k3"]
    with mock.patch.object(sys, "argv", arguments):
        assert check_catalogue.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("\t") for line in lines[1:]] == [
        ["openai-community/gpt2", "124,439,808", "1024", "None", "the same"],
        ["google/gemma-2-2b-it", "2,614,341,888", "8192", "bfloat16", "the same"],
        [
            *("moonshotai/Kimi-K3", "2,779,931,752,544", "1048576", "bfloat16"),
            "its code comes with its weights, and is never run",
        ],
    ]


@pytest.mark.parametrize(
    ("part", "value", "said"),
    [
        ("parameters", 1, "total: 124439808, built 1"),
        ("max_position_embeddings", 2048, "max_position_embeddings: 1024, read 2048"),
        ("dtype", "float16", "dtype: None, read float16"),
    ],
)
def test_the_check_fails_where_anything_differs(
    check_catalogue: ModuleType, part: str, value: object, said: str
) -> None:
    line = next(line for line in recorded("catalogue") if key_of(line) == "openai-community/gpt2")
    cells, differs = check_catalogue.row_of({**line, part: value})
    assert differs and said in cells[-1]
    made = [{**line, part: value}]
    with (
        mock.patch.object(check_catalogue, "lines_of", return_value=made),
        mock.patch.object(sys, "argv", ["check_catalogue.py", "gpt2"]),
    ):
        assert check_catalogue.main() == 1
