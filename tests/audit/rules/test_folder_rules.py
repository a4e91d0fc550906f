"""Rules on what lies in the folder: each with what makes it speak and what does not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model, write_sharded
from headcount.audit import audit_model
from headcount.audit.rules.folder import RULES as FOLDER_RULES
from headcount.audit.rules.tokens import RULES as TOKEN_RULES
from headcount.model import limits
from headcount.report.report import Finding

Make = Callable[[Path], object]


def put(**files: Any) -> Make:
    """Writes files whose names have `__` for a dot: JSON values, or text."""

    def make(folder: Path) -> None:
        for name, value in files.items():
            text = value if isinstance(value, str) else json.dumps(value)
            (folder / name.replace("__", ".")).write_text(text)

    return make


def named(name: str) -> Make:
    return lambda folder: (folder / name).write_bytes(b"x")


def link(name: str, target: str) -> Make:
    return lambda folder: (folder / name).symlink_to(target)


def several(*makes: Make) -> Make:
    def make(folder: Path) -> None:
        for one in makes:
            one(folder)

    return make


def custom_generate(folder: Path) -> None:
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text("import os")


def changed(**values: Any) -> Make:
    """config.json with other values."""

    def make(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **values}))

    return make


auto_map = changed(auto_map={"AutoModelForCausalLM": "app.X"})
unknown_type = changed(model_type="of_next_year")


def vocabulary(size: int, *added: int, special: bool = False) -> Make:
    return put(
        tokenizer__json={
            "model": {"vocab": {f"t{i}": i for i in range(size)}},
            "added_tokens": [{"id": i, "content": "<x>", "special": special} for i in added],
        }
    )


def vision(folder: Path) -> None:
    config = {**LLAMA_CONFIG, "vision_config": {"hidden_size": 8}}
    (folder / "config.json").write_text(json.dumps(config))


def only_numbered(folder: Path) -> None:
    """The weights under a shard's name, and no index."""
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    (folder / "copy-00002.safetensors").write_bytes(b"x")


def ends_at(*tokens: int) -> Make:
    """config.json with this end-of-text token."""
    config = {**LLAMA_CONFIG, "eos_token_id": list(tokens)}
    return put(config__json=config)


TEMPLATE = {"chat_template": "{{ messages }}"}
tokenizer_code = put(tokenizer_config__json={"auto_map": {"AutoTokenizer": ["t.T", None]}})
SPEAKS: list[tuple[str, str, Make]] = [
    ("H206", "warning", named("model-00001-of-00003.safetensors")),
    ("H206", "warning", named("model.safetensors.index.json")),
    ("H207", "note", named("model-Q4_K_M.gguf")),
    ("H214", "note", named("adapter_config.json")),
    ("H215", "error", only_numbered),
    ("H302", "warning", several(named("modeling_x.py"), unknown_type)),
    ("H302", "note", named("modeling_x.py")),
    ("H302", "warning", custom_generate),
    ("H302", "warning", several(named("tokenization_x.py"), tokenizer_code)),
    ("H302", "note", named("app.py")),
    ("H302", "note", several(named("predict.py"), named("conftest.py"), named("run.sh"))),
    ("H302", "warning", several(named("image_processing_x.py"), unknown_type)),
    ("H302", "warning", several(named("app.py"), auto_map, unknown_type)),
    ("H302", "note", several(named("app.py"), auto_map)),
    ("H304", "note", named("pytorch_model.bin")),
    ("H304", "note", named("training_args.bin")),
    ("H306", "warning", link("tokenizer.json", "/etc/hostname")),
    ("H306", "warning", link("README.md", "../../elsewhere")),
    ("H307", "error", put(tokenizer_config__json={"chat_template": "{{ x.__class__ }}"})),
    ("H308", "warning", tokenizer_code),
    ("H308", "warning", put(tokenizer_config__json={"trust_remote_code": True})),
    ("H501", "warning", put(tokenizer_config__json={})),
    ("H502", "warning", vocabulary(41)),
    ("H502", "warning", vocabulary(30, 40)),
    ("H502", "note", vocabulary(30, 40, special=True)),
    ("H503", "warning", put(generation_config__json="{")),
    ("H503", "warning", put(tokenizer_config__json='{"a": 1, "a": 2}')),
    ("H505", "warning", put(generation_config__json={"pad_token_id": 40})),
    ("H506", "warning", several(ends_at(2), put(generation_config__json={"eos_token_id": 3}))),
    ("H507", "note", put(tokenizer_config__json={"model_max_length": 128})),
    ("H508", "note", put(tokenizer_config__json={})),
    ("H509", "warning", several(vision, vocabulary(40))),
]
SILENT: list[tuple[str, Make]] = [
    ("H206", named("consolidated.safetensors")),
    ("H207", named("README.md")),
    ("H214", named("config_sentence_transformers.json")),
    ("H215", named("model-00001-of-00002.safetensors")),
    ("H302", named("LICENSE")),
    ("H304", named("vocab.json")),
    ("H306", link("README.md", "config.json")),
    ("H307", put(tokenizer_config__json=TEMPLATE)),
    ("H308", put(tokenizer_config__json={"auto_map": None})),
    ("H501", several(vocabulary(40), put(tokenizer_config__json={}))),
    ("H502", vocabulary(40, 39)),
    ("H502", put(tokenizer__json={"model": {"vocab": [["a", -1.0]] * 40}})),
    ("H503", put(generation_config__json={})),
    ("H505", put(generation_config__json={"pad_token_id": 39, "eos_token_id": None})),
    ("H506", several(ends_at(2), put(generation_config__json={"eos_token_id": [2, 3]}))),
    ("H507", put(tokenizer_config__json={"model_max_length": 10**30})),
    ("H508", put(tokenizer_config__json=TEMPLATE)),
    ("H509", several(vision, vocabulary(40), put(preprocessor_config__json={}))),
]


def codes(tmp_path: Path, make: Make) -> list[tuple[str, str]]:
    folder = write_model(tmp_path / "a-chat-model", LLAMA_CONFIG, llama_shapes())
    make(folder)
    return [(finding.code, finding.severity) for finding in audit_model(str(folder)).findings]


@pytest.mark.parametrize(("code", "severity", "make"), SPEAKS)
def test_it_speaks(tmp_path: Path, code: str, severity: str, make: Make) -> None:
    assert (code, severity) in codes(tmp_path, make)


@pytest.mark.parametrize(("code", "make"), SILENT)
def test_it_is_silent(tmp_path: Path, code: str, make: Make) -> None:
    assert code not in {found for found, _ in codes(tmp_path, make)}


def test_each_rule_has_a_case_of_either_kind() -> None:
    known = {rule.code for rule in (*FOLDER_RULES, *TOKEN_RULES)}
    assert {code for code, _, _ in SPEAKS} == known
    assert {code for code, _ in SILENT} == known


def only(folder: Path, code: str) -> Finding:
    """The one finding with that code: a kind is said once."""
    (found,) = (one for one in audit_model(str(folder)).findings if one.code == code)
    return found


@pytest.mark.parametrize(
    ("text", "again"),
    [("{", True), ("\xff", True), ('{"a": 1, "a": 2}', False), ("[]", False), (" " * 11, False)],
)
def test_only_broken_files_are_worth_another_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, again: bool
) -> None:
    """One beyond the limit is as it was made: the limit is no reason to fetch it again."""
    folder = write_model(tmp_path, LLAMA_CONFIG, llama_shapes())
    file = folder / "tokenizer.json"
    file.write_bytes(text.encode("latin-1"))
    if text.isspace():
        tiny = limits.TOKENIZER_BYTES._replace(most=10)
        monkeypatch.setattr(limits, "TOKENIZER_BYTES", tiny)
    hint = only(folder, "H503").hint
    assert ("download" in hint) == again
    assert "was not checked" in hint


def test_links_out_of_the_folder_are_one_finding(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    for name in ("a.txt", "b.txt", "c.txt"):
        link(name, "/etc/hostname")(folder)
    assert "(3 such files)" in only(folder, "H306").message


def test_a_link_out_of_the_folder_is_not_opened(tmp_path: Path) -> None:
    """What it leads to is not even parsed: no finding speaks of its content."""
    (tmp_path / "evil.json").write_text("{")
    found = codes(tmp_path, link("generation_config.json", "../evil.json"))
    assert [code for code, _ in found] == ["H306"]


def test_a_sound_folder_has_no_findings(tmp_path: Path) -> None:
    make = several(vocabulary(40), put(tokenizer_config__json=TEMPLATE))
    assert codes(tmp_path, make) == []


@pytest.mark.parametrize("end", ["safetensors", "bin"])
def test_one_shard_alone_is_no_model(tmp_path: Path, end: str) -> None:
    """transformers asks for model.safetensors or an index, and finds neither."""
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes(), 4)
    (folder / "model.safetensors.index.json").unlink()
    for number in (1, 3, 4):
        (folder / f"model-0000{number}-of-00004.safetensors").unlink()
    if end == "bin":
        lone = folder / "model-00002-of-00004.safetensors"
        lone.unlink()
        for number in (1, 2):
            lone.with_name(f"pytorch_model-0000{number}-of-00004.bin").write_bytes(b"PK")
    (one,) = (f for f in audit_model(str(folder)).findings if f.code == "H215")
    assert one.severity == "error"
    assert f"{1 if end == 'safetensors' else 2} of 4 shard(s)" in one.message


def test_a_byte_order_mark_is_an_error_as_in_transformers(tmp_path: Path) -> None:
    """json.loads of text that was decoded as UTF-8, as transformers reads it, refuses the mark."""
    folder = write_sharded(tmp_path, LLAMA_CONFIG, llama_shapes())
    (folder / "tokenizer_config.json").write_text(json.dumps(TEMPLATE))
    names = ("config.json", "model.safetensors.index.json", "tokenizer_config.json")
    for number, name in enumerate(names, 1):
        path = folder / name
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        with pytest.raises(json.JSONDecodeError):
            json.loads(path.read_text("utf-8"))
        found = {(f.code, f.where) for f in audit_model(str(folder)).findings}
        marked = {("H216", one) for one in names[: min(number, 2)]}
        beside = {("H503", names[2])} if number == 3 else set()
        assert found >= marked | beside
        assert {code for code, _ in found if code in ("H216", "H503")} == {
            code for code, _ in marked | beside
        }
    for target in (folder / "config.json", next(folder.glob("*.safetensors"))):
        (one,) = (f for f in audit_model(str(target)).findings if f.code == "H216")
        assert one.severity == "error"
