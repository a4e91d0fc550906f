"""Tasks of lm-evaluation-harness: a local one, on data of its own, offline."""

import importlib.util
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from headcount.cli import main
from headcount.evaluate.evaluation_request import EvaluationRequest
from headcount.evaluate.tasks import _compared, check_tasks
from headcount.model.errors import HeadcountError, MissingExtraError

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
SHORT = ["--max-tokens", "64", "--no-speed", "--behaviour", "none", "--no-roles"]
needs_harness = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="needs lm_eval, whose dependencies (pyarrow, pandas, scipy…) are as large as torch's",
)
QUESTIONS: list[dict[str, Any]] = [
    {"question": "The sky is", "choices": [" blue", " a stone that swims"], "answer": 0},
    {"question": "Two and two", "choices": [" are a long river", " make four"], "answer": 1},
    {"question": "He went", "choices": [" home", " the of and to"], "answer": 0},
    {"question": "A day has", "choices": [" hours", " no sea in it"], "answer": 1},
]


@pytest.fixture
def task_folder(tmp_path: Path) -> Path:
    """A task of four questions, with two answers each."""
    folder = tmp_path / "tasks"
    folder.mkdir()
    lines = "".join(json.dumps(question) + "\n" for question in QUESTIONS)
    (folder / "questions.jsonl").write_text(lines, encoding="utf-8")
    task = {
        "task": "four_questions",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(folder / "questions.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{question}}",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    (folder / "four_questions.yaml").write_text(json.dumps(task), encoding="utf-8")
    return folder


def _accuracy(folder: Path) -> float:
    """By hand: the choice whose tokens are likelier after the question."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    right = 0
    for question in QUESTIONS:
        sums = [
            _likelihood(model, tokenizer, question["question"], choice)
            for choice in question["choices"]
        ]
        right += sums.index(max(sums)) == question["answer"]
    return right / len(QUESTIONS)


@torch.no_grad()
def _likelihood(model: Any, tokenizer: Any, question: str, choice: str) -> float:
    before, whole = tokenizer(question)["input_ids"], tokenizer(question + choice)["input_ids"]
    scores = model(torch.tensor([whole])).logits[0].log_softmax(-1)
    places = range(len(before), len(whole))
    return sum(float(scores[at - 1, whole[at]]) for at in places)


@needs_harness
def test_both_models_answer_and_a_converted_one_with_our_own_class(
    save_model: SaveModel, task_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPT-2 has no class with fewer K/V heads, so that the converted one is of our modelling."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    source, target = save_model("gpt2"), tmp_path / "out"
    made = CliRunner().invoke(main, ["convert", str(source), str(target), "--kv-heads", "1"])
    assert made.exit_code == 0, made.stderr
    command = ["evaluate", str(target), "--against", str(source), *SHORT, "--format", "json"]
    options = ["--tasks", "four_questions", "--task-folder", str(task_folder)]
    result = CliRunner().invoke(main, [*command, *options])
    assert result.exit_code == 0, result.stderr
    (one,) = json.loads(result.stdout)["tasks"]
    assert (one["task"], one["metric"], one["samples"]) == ("four_questions", "acc", 4)
    assert one["higher_is_better"] is True
    assert one["against"]["value"] == _accuracy(source)
    share = one["model"]["value"]
    # the standard error of a mean of n values: their deviation (over n - 1) by the root of n
    assert one["model"]["stderr"] == pytest.approx(math.sqrt(share * (1 - share) / 3))


@pytest.mark.slow  # the harness reads thousands of files to know its tasks
@needs_harness
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--tasks", "four_question"], r"four_question: .* no such task.*near it: four_questions"),
        (["--tasks", "four_questions,nowhere_to_be"], "nowhere_to_be"),
    ],
)
def test_an_unknown_task_is_named_before_anything_is_loaded(
    save_model: SaveModel, task_folder: Path, options: list[str], expected: str
) -> None:
    model = str(save_model("llama"))
    command = ["evaluate", model, *SHORT, "--task-folder", str(task_folder), *options]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(expected, result.stderr)


def test_the_extra_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.evaluate.tasks.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"lm-evaluation-harness.*'\.\[tasks\]'"):
        check_tasks(EvaluationRequest(model="any", tasks=("hellaswag",)))


@pytest.mark.parametrize("options", [{"task_limit": 3}, {"task_folder": Path("here")}])
def test_options_of_tasks_want_a_task(options: dict[str, Any]) -> None:
    with pytest.raises(HeadcountError, match="for --tasks NAME"):
        check_tasks(EvaluationRequest(model="any", **options))


def test_results_are_read_as_the_harness_has_them() -> None:
    """Its own shape: an alias, sample counts, and N/A where there is no standard error."""

    def results(acc: float, stderr: float | str) -> dict[str, Any]:
        values = {
            "alias": "q",
            "sample_len": 7,
            "acc,none": acc,
            "acc_stderr,none": 0.1,
            "exact_match,strict": 0.5,
            "exact_match_stderr,strict": stderr,
        }
        return {
            "results": {"q": values},
            "n-samples": {"q": {"original": 9, "effective": 7}},
            "higher_is_better": {"q": {"acc": True}},
        }

    one, other = _compared([results(0.25, "N/A"), results(0.75, 0.2)])
    assert (one.metric, one.filter, one.samples, one.higher_is_better) == ("acc", "none", 7, True)
    assert one.against is not None and other.against is not None
    assert (one.model.value, one.against.value, one.model.stderr) == (0.25, 0.75, 0.1)
    assert (other.metric, other.filter, other.model.stderr) == ("exact_match", "strict", None)
    assert (other.against.stderr, other.higher_is_better) == (0.2, None)
