"""What other tools start: the pre-commit hooks, the GitHub Action, and completion in a shell."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml", reason="comes with huggingface_hub")

ROOT = Path(__file__).parents[1]
SOUND = {
    **{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "dtype": "bfloat16"},
    **{"num_hidden_layers": 1, "vocab_size": 32, "intermediate_size": 64},
    **{"max_position_embeddings": 128, "bos_token_id": 1, "eos_token_id": 2},
}
FAULTY = {**SOUND, "bos_token_id": 77}  # H504, a warning


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A folder bin with the command headcount, as an install has it."""
    folder = tmp_path / "runner" / "headcount" / "bin"
    folder.mkdir(parents=True)
    for name in ("headcount", "audit"):
        main = "main" if name == "headcount" else "audit_main"
        code = f"import sys; sys.argv[0] = {name!r}; from headcount.cli import {main}; {main}()"
        (folder / name).write_text(f'#!/bin/sh\nexec \'{sys.executable}\' -c "{code}" "$@"\n')
        (folder / name).chmod(0o755)
    return folder


def model(folder: Path, config: dict[str, object]) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder


def test_the_action_fails_on_a_fault_and_leaves_its_findings(program: Path, tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (install, audit) = action["runs"]["steps"]
    assert "$GITHUB_ACTION_PATH" in install["run"]
    inputs = {name: each.get("default", "") for name, each in action["inputs"].items()}

    def run(**given: str) -> subprocess.CompletedProcess[str]:
        values = {**inputs, **{name.replace("_", "-"): text for name, text in given.items()}}
        names = {key: re.sub(r"\W|inputs\.", "", value) for key, value in audit["env"].items()}
        by_name = {re.sub(r"\W", "", name): text for name, text in values.items()}
        environment = {key: by_name[name] for key, name in names.items()}
        output = tmp_path / "output"
        output.write_text("")
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", audit["run"]],
            cwd=tmp_path,
            env={
                **os.environ,
                **environment,
                **{"RUNNER_TEMP": str(tmp_path / "runner"), "GITHUB_OUTPUT": str(output)},
            },
            capture_output=True,
            text=True,
        )

    model(tmp_path / "a sound one", SOUND)
    model(tmp_path / "a faulty; one", FAULTY)
    both = "a sound one\na faulty; one\n"
    assert run(models=both).returncode == 0, "a warning is no error"
    done = run(models=both, fail_on="warning")
    assert done.returncode == 1 and "H504" in done.stdout, done.stderr
    assert (tmp_path / "output").read_text() == "sarif=headcount.sarif\n"
    (found,) = json.loads((tmp_path / "headcount.sarif").read_text())["runs"]
    assert "H504" in {result["ruleId"] for result in found["results"]}
    assert run(models=both, fail_on="warning", args="--ignore\nH504").returncode == 0
    assert run(models="nowhere/at-all/x").returncode == 2


def hooks() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    return {hook["id"]: hook for hook in found}


@pytest.mark.skipif(importlib.util.find_spec("pre_commit") is None, reason="no pre-commit")
@pytest.mark.skipif(shutil.which("git") is None, reason="no git")
def test_pre_commit_runs_the_hooks_on_a_folder_with_a_fault(program: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    model(work / "model", FAULTY)
    environment = {
        **os.environ,
        **{"PATH": f"{program}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(tmp_path / "home")},
        **{"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
    }

    def pre_commit(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "pre_commit", *arguments]
        return subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, check=False
        )

    def run(hook: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As of a repository whose hooks are installed already."""
        local = {**hooks()[hook], "language": "system", "args": [*arguments]}
        config = {"repos": [{"repo": "local", "hooks": [local]}]}
        (work / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
        return pre_commit("run", "--all-files", hook)

    for command in (["init", "-q"], ["add", "model"]):
        subprocess.run(["git", *command], cwd=work, env=environment, check=True)
    valid = pre_commit("validate-manifest", str(ROOT / ".pre-commit-hooks.yaml"))
    assert valid.returncode == 0, valid.stdout
    assert run("headcount-audit", "model").returncode == 0
    for hook, named in (("headcount-audit", ["model"]), ("headcount-audit-configs", [])):
        failed = run(hook, "--fail-on", "warning", *named)
        assert failed.returncode == 1 and "H504" in failed.stdout, failed.stdout + failed.stderr
    (work / "model" / "config.json").write_text(json.dumps(SOUND))
    assert run("headcount-audit-configs", "--fail-on", "warning").returncode == 0


def completed(program: Path, words: str, name: str = "headcount") -> list[str]:
    """What bash is offered for the last of `words`."""
    done = subprocess.run(
        [program / name],
        env={
            **os.environ,
            **{f"_{name.upper()}_COMPLETE": "bash_complete", "COMP_WORDS": words},
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_shell_completes_commands_models_and_devices(program: Path) -> None:
    assert "plain,audit" in completed(program, "headcount a")
    models = completed(program, "headcount audit llama-3-")
    assert "plain,llama-3-8b" in models and "file,llama-3-" in models
    assert "plain,llama-3-8b" in completed(program, "audit llama-3-", "audit")
    assert "plain,meta-llama/Meta-Llama-3-8B" in completed(program, "headcount diff gpt2 META-LL")
    assert "plain,h100" in completed(program, "headcount plan gpt2 --device h1")
    assert "plain,l4,h100" in completed(program, "headcount plan gpt2 --device l4,h1")
    assert "plain,vllm" in completed(program, "headcount plan gpt2 --engine v")
    assert completed(program, "headcount audit no/such-") == ["file,no/such-"]


def test_bash_offers_the_names(program: Path) -> None:
    """What bash has in the end: of its script's answers some undo those before them."""
    asking = {**os.environ, "_HEADCOUNT_COMPLETE": "bash_source"}
    command = [program / "headcount"]
    script = subprocess.run(command, env=asking, capture_output=True, text=True).stdout
    asked = (
        f"compopt() {{ :; }}; {script}\nCOMP_WORDS=(headcount audit llama-3-8); COMP_CWORD=2;"
        f' _headcount_completion {program}/headcount; echo "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True)
    assert "llama-3-8b" in done.stdout.split(), done.stderr
