"""Findings as SARIF: what a code host needs of it, and where the findings are."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main

CONFIG = {
    **{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4},
    **{"num_hidden_layers": 1, "vocab_size": 32, "intermediate_size": 64, "bos_token_id": 77},
}


def run_of(*models: str, status: int = 0) -> dict[str, Any]:
    result = CliRunner().invoke(main, ["audit", *models, "--format", "sarif"])
    assert result.exit_code == status, result.stderr
    document = json.loads(result.stdout)
    assert document["version"] == "2.1.0" and "sarif-schema-2.1.0" in document["$schema"]
    (run,) = document["runs"]
    return dict(run)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "a model"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(CONFIG, indent=1))
    return made


def test_a_finding_names_its_rule_its_file_and_its_line(folder: Path) -> None:
    run = run_of("a model")
    rules = run["tool"]["driver"]["rules"]
    found = {result["ruleId"]: result for result in run["results"]}
    result = found["H504"]
    assert result["level"] == "warning" and rules[result["ruleIndex"]]["id"] == "H504"
    (location,) = result["locations"]
    place = location["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20model/config.json", "uriBaseId": "SRCROOT"}
    text = (folder / "config.json").read_text().splitlines()
    assert '"bos_token_id"' in text[place["region"]["startLine"] - 1]
    assert location["logicalLocations"][0]["fullyQualifiedName"] == "bos_token_id"
    assert run["originalUriBaseIds"]["SRCROOT"]["uri"].endswith("/")
    assert run["invocations"][0]["executionSuccessful"] is True


def test_every_result_has_what_a_code_host_reads(folder: Path) -> None:
    run = run_of("a model", "gpt2")
    rules = run["tool"]["driver"]["rules"]
    assert len({rule["id"] for rule in rules}) == len(rules)
    assert run["results"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["message"]["text"] and result["level"] in ("error", "warning", "note")
    for rule in rules:
        assert rule["shortDescription"]["text"] and rule["help"]["text"]
        anchor = f"## {rule['id']} "
        assert anchor in (Path(__file__).parents[2] / "docs" / "findings.md").read_text()


def test_a_model_of_the_catalogue_has_no_file() -> None:
    for result in run_of("gpt2")["results"]:
        assert "physicalLocation" not in result["locations"][0]


def test_a_file_beside_the_weights_is_where_its_finding_is(folder: Path) -> None:
    (folder / "modeling_own.py").write_text("")
    run = run_of("a model")
    (code,) = [one for one in run["results"] if "modeling_own.py" in one["message"]["text"]]
    artifact = code["locations"][0]["physicalLocation"]["artifactLocation"]
    assert artifact["uri"] == "a%20model/modeling_own.py"


def test_one_of_several_that_fails_is_told(folder: Path) -> None:
    run = run_of("no-such-model", "a model", status=2)
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is False
    (told,) = invocation["toolExecutionNotifications"]
    assert "no-such-model" in told["message"]["text"]
    assert run["results"][0]["locations"][0]["physicalLocation"]
