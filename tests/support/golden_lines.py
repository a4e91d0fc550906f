"""A JSON report of the command line as one line that a person can read and add up."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Document = Mapping[str, Any]
SEPARATOR = " | "


def audit_line(document: Document, at: Document) -> str:
    """Of one model: `at` is its audit with another context."""
    model, totals, request = (document[key] for key in ("model", "totals", "request"))
    total = totals["parameters"]
    unknown = f"unknown: {totals.get('parameters_unknown')}"
    cells = [
        model["model_type"] + " (assumed)" * bool(model["assumed"]),
        f"{_n(total)} parameters" if total is not None else unknown,
        f"{_n(totals['attention_parameters'])} attention",
        f"{_n(totals['cache_bytes'])} B at {_n(request['context'])}",
        f"{_n(at['totals']['cache_bytes'])} B at {_n(at['request']['context'])}",
        f"{_n(totals['cache_bytes_per_token'])} B a token + {_n(totals['constant_state_bytes'])} B",
        "; ".join(_layers(document["layers"])),
        ", ".join(_findings(document["findings"])) or "no findings",
    ]
    active = totals["active_parameters"]
    if active not in (None, total):
        cells[1] += f", {_n(active)} active"
    return SEPARATOR.join(cells)


def _layers(layers: Iterable[Document]) -> Iterator[str]:
    """Layers of a kind together, with what each of them holds and keeps."""
    alike: dict[tuple[str, str], list[int]] = {}
    for layer in layers:
        mixers = " + ".join(_mixer(mixer) for mixer in layer["mixers"]) or "nothing"
        shared = layer["shares_cache_with"]
        what = f"{_n(layer['attention_parameters'])} p, {_n(layer['cache_bytes'])} B: {mixers}"
        what += f" reads the cache of {shared}" if shared is not None else ""
        alike.setdefault((layer["stack"], what), []).append(layer["index"])
    for (stack, what), indices in alike.items():
        yield f"{len(indices)} x {what} ({stack} {ranges(indices)})"


def _mixer(mixer: Document) -> str:
    heads, kv = mixer.get("num_attention_heads"), mixer.get("num_key_value_heads")
    dims = [mixer.get("head_dim"), mixer.get("v_head_dim")]
    words = [mixer["heads"] or mixer["kind"], mixer["form"]]
    if mixer["kind"] != "attention" and mixer["heads"]:
        words.insert(0, mixer["kind"])
    if heads is not None:
        sides = [str(dim) for dim in dict.fromkeys(dims) if dim is not None]
        words.append(f"{heads}{'' if kv is None else f'/{kv}'} x {'+'.join(sides)}")
    if mixer.get("window") is not None:
        words.append(f"window {_n(mixer['window'])}")
    if mixer["kind"] == "recurrent":
        words.append(f"{_n(mixer['parameters'])} p")
    return " ".join(word for word in words if word)


def plan_line(document: Document) -> str:
    """Of one plan: the engine's account, or without an engine the general one; or of a search."""
    engine = document.get("engine")
    if engine is None:
        return _general(document)
    if engine["options"]:
        return _search(engine)
    terms = [f"{term['key']} {_n(term['bytes'])}" for term in engine["budget"]]
    budget = f"{' - '.join(terms)} = " * bool(terms)
    change = engine["smallest_change"]
    cells = [
        f"{engine['name']} {engine['version'] or ''}".strip(),
        _verdict(engine["fits"]) + (f", short of {engine['limiting_term']}" * (not engine["fits"])),
        f"{budget}{_n(engine['available_kv_bytes'])} B for the cache",
        f"{_n(engine['kv_tokens'])} tokens of {_n(engine['rank_cache_bytes_per_token'])} B",
        f"{_n(engine['num_blocks'])} blocks of {_n(engine['block_size'])}",
        f"{engine['concurrency']:.4f} requests of {_n(engine['context'])}"
        f" {engine['kv_dtype']}, at most {_n(engine['max_context'])} tokens",
        f"else {change['text']}" if change else "no change",
        engine["launch_command"] or f"no command: {engine['launch_notes'][0]}",
    ]
    wanted = (
        f"{held['require']}: {'holds' if held['holds'] else 'fails'}"
        for held in engine["requirements"]
    )
    return SEPARATOR.join([*cells, *wanted])


def _general(document: Document) -> str:
    memory, limits, rank = (document[key] for key in ("memory", "limits", "per_rank"))
    over = (f"{name} {_n(size)}" for name, size in memory["overhead_bytes"].items())
    terms = [
        f"weights {_n(memory['weights_bytes'])}",
        f"cache {_n(memory['kv_cache_bytes'])}",
        *over,
    ]
    cells = [
        "no engine",
        _verdict(document["fits"]),
        f"{' + '.join(terms)} = {_n(memory['total_bytes'])} B",
        f"budget {_n(memory['budget_bytes'])}, free {_n(memory['free_bytes'])} B",
        f"at most {_n(limits['max_context'])} tokens, {_n(limits['max_batch_size'])} sequences",
        f"{rank['num_attention_heads']}/{rank['num_key_value_heads']} heads a rank,"
        f" {rank['kv_copies']} copies, {_n(rank['rank_cache_bytes_per_token'])} B a token",
    ]
    fitting = [row["device"] for row in document["devices"] if row["fits"]]
    if document["devices"]:
        cells.append(f"fits {len(fitting)} of {len(document['devices'])}: {', '.join(fitting)}")
    return SEPARATOR.join(cells)


def _search(engine: Document) -> str:
    found = (
        f"{option['devices']} x {option['device']} (tp {option['tp']} x pp {option['pp']} x"
        f" {option['replicas']}): {_n(option['available_kv_bytes'])} B,"
        f" {_n(option['kv_tokens'])} tokens, {option['concurrency']} requests"
        for option in engine["smallest"]
    )
    fitting = sum(option["fits"] for option in engine["options"])
    holds = f"{fitting} of {len(engine['options'])} fit"
    return SEPARATOR.join([f"{engine['name']} {engine['version'] or ''}".strip(), holds, *found])


def _verdict(fits: bool | None) -> str:
    return {True: "fits", False: "does not fit", None: "no device"}[fits]


def conversion_line(document: Document) -> str:
    """Of one plan of a conversion: home, sizes, steps by verb, keys that change, what is said."""
    source, target = document["source"], document["target"]
    steps = Counter(step["action"] for step in document["tensors"])
    heads = Counter(
        f"{layer['num_attention_heads']}/{layer['num_key_value_heads']['before']} ->"
        f" {layer['padded_attention_heads'] or layer['num_attention_heads']}"
        f"/{layer['num_key_value_heads']['after']} x {layer['head_dim']}"
        for layer in document["layers"]
    )
    modules: dict[str, dict[str, None]] = {}
    for step in document["tensors"]:
        modules.setdefault(step["action"], {})[_starred(step["name"])] = None
    for gone in document["dropped"]:
        modules.setdefault("drop", {})[_starred(gone["name"])] = None
    cells = [
        f"{source['model_type']} -> {target['model_type']}",
        target["home"],
        f"{_n(source['bytes'])} -> {_n(target['bytes'])} B",
        ", ".join(f"{count} x {what}" for what, count in heads.items()),
        ", ".join(f"{count} {verb}" for verb, count in sorted(steps.items())),
        "; ".join(
            f"{verb} {', '.join(names)}" for verb, names in modules.items() if verb != "copy"
        ),
        "; ".join(document["config_changes"]),
        "; ".join(document["notes"]) or "no notes",
        ", ".join(_findings(document["findings"])) or "no findings",
    ]
    return SEPARATOR.join(cells)


def _starred(name: str) -> str:
    """The module of a tensor, without numbers."""
    module = name.removesuffix(".weight").removesuffix(".bias")
    return ".".join("*" if word.isdigit() else word for word in module.split("."))


def _findings(findings: Iterable[Document]) -> Iterator[str]:
    return (f"{found['code']} {found['where']}" for found in findings)


def _n(number: float | None) -> str:
    return "-" if number is None else f"{number:,}"


def ranges(numbers: Iterable[int]) -> str:
    """`0-3,5` for 0, 1, 2, 3, 5."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
