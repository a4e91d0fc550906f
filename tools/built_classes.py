"""Write arch/generated/built_classes.jsonl: what each class of a type holds beside its base class.

`architectures` names the class that a config is for: a classifier, an encoder alone, a decoder
alone. This script builds tiny models of every class from the same random configs as that of
`AutoModel`, on the meta device, and writes how their parameters differ, one line a model_type:

    {"model_type": "bert", "base": "BertModel", "classes": {"BertForTokenClassification":
        {"terms": [[-1, "hidden_size"], [1, "num_labels"], [1, "hidden_size", "num_labels"], ...]}}}

A term is a number of parameters times the keys of the config behind it; `?key` is 1 where the key
holds something but false, 0 or null, and `!key` its opposite. `without` names stacks that the class
does not build: the terms tell nothing of their layers. A class that does as its config says
(`is_encoder_decoder`) has a list of forms, each with the value that it is for. Without `terms`, no
such terms give its parameters (what several keys decide); `own_layers` are others than the base's.
`roots` are the first words that the names of a file may all share for the base class, `own_roots`
what a class knows beside them; null where it is not built of the config.

    python tools/built_classes.py           # write the file: minutes
    python tools/built_classes.py --check   # exit 1 if the file is not what transformers builds
    python tools/built_classes.py bert t5   # print the lines of these types
"""

import argparse
import contextlib
import copy
import itertools
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
sys.path[:0] = [str(SUPPORT), str(SUPPORT / "truth")]

import class_defaults  # noqa: E402
import transformers  # noqa: E402
from transformers import CONFIG_MAPPING, PreTrainedModel  # noqa: E402
from transformers.models.auto import modeling_auto  # noqa: E402

from classes_truth import classes_of, instance, labelled  # noqa: E402
from headcount.arch.registry import ARCHITECTURES  # noqa: E402
from random_configs import Config  # noqa: E402
from tiny_truth import read  # noqa: E402
from total_configs import _RUNNING as RUNNING  # noqa: E402
from total_configs import total_config  # noqa: E402

TARGET = Path(__file__).parent.parent / "arch" / "generated" / "built_classes.jsonl"
SAMPLES, ATTEMPTS = 16, 60
FEWEST, ENOUGH = 2, 6  # samples that show a tensor, and that one of its sides is a constant
TURNED = 3  # samples of each flag that chance leaves alone
_FIRST = ("num_labels", "hidden_size", "d_model", "n_embd", "vocab_size", "tie_word_embeddings")
# What the table of class defaults leaves out, and every config has.
_ALWAYS_READ = ("num_labels", "tie_word_embeddings")
_BOTH = "is_encoder_decoder"
_STACKS = {"encoder", "decoder", "text", "vision"}  # as the layers of an audit are called
_NUMBERED = re.compile(r"(^|\.)\d+\.")

Shapes = dict[str, tuple[int, ...]]
Terms = Counter[tuple[str, ...]]


class NotTold(Exception):
    """No terms give the parameters of a class; says of which tensor."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A config, the tensors of the base class, and the config's values by their dotted keys."""

    config: Config
    base: Shapes
    sizes: dict[str, int]
    flags: dict[str, bool]


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A class beside the base class, built of one sample."""

    own: Shapes
    sample: Sample


def line(model_type: str) -> str:
    """The JSON line of one model_type."""
    names = classes_of(model_type)
    base = base_class(model_type)
    found = samples(model_type, base) if base else []
    others = {name: difference(name, found) for name in names if name != base}
    roots = roots_of(base, names, found[0]) if base and found else {}
    row = {"model_type": model_type, "base": base, "classes": others, **roots}
    return json.dumps(row, separators=(",", ":"))


def roots_of(base: str, names: Sequence[str], one: Sample) -> dict[str, Any]:
    """What the names of a file begin with, by class: its parts, and the name of the base model in
    those with a head, which transformers drops and adds on loading."""
    shared = roots_of_class(base, one) or []
    own: dict[str, list[str] | None] = {}
    for name in names:
        found = roots_of_class(name, one)
        more = found and [root for root in found if root not in shared]
        own |= {name: more} if more or found is None else {}
    return {"roots": shared, **({"own_roots": own} if own else {})}


def roots_of_class(name: str, one: Sample) -> list[str] | None:
    with contextlib.suppress(Exception):
        model = instance(name, one.config)
        words = (model.base_model_prefix, *(n for n, _ in model.named_parameters()))
        return sorted({word.split(".")[0] for word in words if word})
    return None


def base_class(model_type: str) -> str | None:
    """The class of `AutoModel`, the first of several; or the plainest one of a part of a model."""
    found: Any = modeling_auto.MODEL_MAPPING_NAMES.get(model_type)
    name = found if isinstance(found, str) or found is None else found[0]
    bare = (one for one in classes_of(model_type) if one.endswith("Model"))
    return name if name in classes_of(model_type) else min(bare, key=len, default=None)


def samples(model_type: str, base: str) -> list[Sample]:
    """Random configs that the base class builds, and more for each flag that is the same in all of
    them, with its other value."""
    configs = (labelled(total_config(model_type, seed), seed) for seed in range(ATTEMPTS))
    found: list[Sample] = []
    for config in configs:
        config["tie_word_embeddings"] = len(found) % 2 == 0
        found += filter(None, [sample(base, config)])
        if len(found) == SAMPLES:
            break
    turned = [turned_over(one, key) for key in constant(found) for one in found[:TURNED]]
    return [*found, *filter(None, (sample(base, config) for config in turned))]


def sample(base: str, config: Config) -> Sample | None:
    """None for a combination that the class refuses."""
    with contextlib.suppress(Exception):
        model = instance(base, config)
        sizes, flags = values_of(read(config).to_dict())
        sizes["num_labels"] = len(config["id2label"])
        return Sample(config=config, base=tensors(model), sizes=sizes, flags=flags)
    return None


def constant(found: Sequence[Sample]) -> list[str]:
    """Dotted keys of flags that no sample has otherwise."""
    if not found:
        return []
    keys = ordered([one.flags for one in found])
    same = (key for key in keys if key not in found[0].sizes and key not in RUNNING)
    return [key for key in same if len({one.flags[key] for one in found}) == 1]


def turned_over(one: Sample, key: str) -> Config:
    """The config with the other value of a flag; as it was for what is no flag, but null."""
    *path, name = key.split(".")
    config = copy.deepcopy(one.config)
    holder, whole = config, read(one.config).to_dict()
    for part in path:
        holder, whole = holder.setdefault(part, {}), whole[part]
    if isinstance(whole[name], bool):
        holder[name] = not whole[name]
    return config


def tensors(model: PreTrainedModel) -> Shapes:
    """Shapes by names, without the name of the base model in front; a shared one once."""
    prefix = f"{model.base_model_prefix}."
    shapes = {n: tuple(p.shape) for n, p in model.named_parameters()}
    inner = {n.removeprefix(prefix): s for n, s in shapes.items() if n.startswith(prefix)}
    beside = {n: s for n, s in shapes.items() if not n.startswith(prefix)}
    return {**inner, **{f"head.{n}" if n in inner else n: s for n, s in beside.items()}}


def values_of(values: dict[str, Any], path: str = "") -> tuple[dict[str, int], dict[str, bool]]:
    """Numbers and flags that a config holds, of those that an audit can read, by dotted keys."""
    sizes: dict[str, int] = {}
    flags: dict[str, bool] = {}
    for key, value in values.items():
        if key in _ALWAYS_READ or (isinstance(key, str) and class_defaults.is_relevant(key, value)):
            if isinstance(value, dict) and path.count(".") < 2:
                more = values_of(value, path=f"{path}{key}.")
                sizes, flags = sizes | more[0], flags | more[1]
            elif value is None or isinstance(value, (bool, int)):
                flags[path + key] = bool(value)
                if type(value) is int:
                    sizes[path + key] = value
    return sizes, flags


def difference(name: str, found: Sequence[Sample]) -> Any:
    """How the class differs from the base class; nothing where none of the configs builds it."""
    forms = [(value, form(name, found, value)) for value in values_of_both(found)]
    built = [(value, one) for value, one in forms if one is not None]
    if not built:
        return {}
    if all(one == built[0][1] for _, one in built) and len(built) == len(forms):
        return built[0][1]
    return [{_BOTH: value, **one} for value, one in built]


def values_of_both(found: Sequence[Sample]) -> tuple[bool, ...]:
    is_both = any(read(sample.config).is_encoder_decoder for sample in found)
    return (True, False) if is_both else (False,)


def form(name: str, found: Sequence[Sample], both: bool) -> dict[str, Any] | None:
    """Stacks that are not built, and terms as far as they can be told; None for a class that takes
    none of the configs."""
    pairs = list(filter(None, (pair(name, sample, both) for sample in found)))
    if len(pairs) < FEWEST:
        return None
    try:
        lists = stacks_gone(pairs)
    except NotTold:
        return {"own_layers": True}
    stacks = sorted({path.split(".")[0].removesuffix("_model") for path in lists})
    if not _STACKS.issuperset(stacks) or any(map(attends_otherwise, pairs)):
        return {"own_layers": True}
    one: dict[str, Any] = {"without": stacks} if stacks else {}
    with contextlib.suppress(NotTold):
        terms = told(pairs, lists)
        one["terms"] = [[n, *keys] for keys, n in sorted(terms.items()) if n]
    return one


def pair(name: str, sample: Sample, both: bool) -> Pair | None:
    """The class beside the base class; some take two labels only, and a few refuse a config."""
    plain = {k: v for k, v in sample.config.items() if k not in ("id2label", "label2id")}
    for config, labels in ((sample.config, sample.sizes["num_labels"]), (plain, 2)):
        with contextlib.suppress(Exception):
            own = tensors(instance(name, {**config, _BOTH: both}))
            labelled = replace(sample, sizes={**sample.sizes, "num_labels": labels})
            return Pair(own=placed(own, sample.base), sample=labelled)
    return None


def placed(own: Shapes, base: Shapes) -> Shapes:
    """`own` by the names of the base class, of which the class is a part, or which it holds."""
    inner = dict.fromkeys(f"{name.split('.')[0]}." for name in base)
    outer = dict.fromkeys(f"{name.split('.')[0]}." for name in own)
    renamed = [{part + name: shape for name, shape in own.items()} for part in inner]
    renamed += [{n.removeprefix(part): shape for n, shape in own.items()} for part in outer]
    return max(
        (own, *renamed), key=lambda names: sum(base.get(n) == shape for n, shape in names.items())
    )


def told(pairs: Sequence[Pair], lists: tuple[str, ...]) -> Terms:
    """What the class holds more, and less, than the base class without the layers of `lists`."""
    for tensor in (n for p in pairs for n, s in p.own.items() if p.sample.base.get(n, s) != s):
        raise NotTold(f"{tensor} has another shape")
    more = added(pairs, [(pair.own, pair.sample.base) for pair in pairs])
    less = added(pairs, [(without(pair.sample.base, lists), pair.own) for pair in pairs])
    more.subtract(less)
    return more


def stacks_gone(pairs: Sequence[Pair]) -> tuple[str, ...]:
    """The lists of layers with attention that the class does not build."""
    gone = {frozenset(lists_gone(pair)) for pair in pairs}
    if len(gone) > 1:
        raise NotTold("its stacks change with the config")
    strange = (n for pair in pairs for n in pair.own if n not in pair.sample.base)
    if any(_NUMBERED.search(name) and "att" in name.lower() for name in strange):
        raise NotTold("it has layers that the base class has not")
    return tuple(f"{path}." for path in sorted(gone.pop()))


def attends_otherwise(pair: Pair) -> bool:
    """Whether an attention of the class is not one of the base class."""
    attention = (name for name in pair.own if "attention" in name)
    return any(pair.own[name] != pair.sample.base.get(name) for name in attention)


def lists_gone(pair: Pair) -> Iterator[str]:
    """Lists of layers with attention that the base class has alone."""
    found = (match for name in pair.sample.base if (match := _NUMBERED.search(name)))
    lists = {m.string[: m.start()] for m in found if "att" in m.string[m.end() :].lower()}
    for path in lists:
        if not any(name.startswith(f"{path}.") for name in pair.own):
            yield path


def without(shapes: Shapes, lists: tuple[str, ...]) -> Shapes:
    return {name: shape for name, shape in shapes.items() if not name.startswith(lists)}


def added(pairs: Sequence[Pair], sides: Sequence[tuple[Shapes, Shapes]]) -> Terms:
    """Terms of the tensors that the first side of each has and the second has not."""
    terms: Terms = Counter()
    for tensor in dict.fromkeys(name for one, _ in sides for name in one):
        present = [tensor in one and tensor not in other for one, other in sides]
        if any(present):
            shown = list(itertools.compress(zip(sides, pairs, strict=True), present))
            shapes = [side[0][tensor] for side, _ in shown]
            sizes = [pair.sample.sizes for _, pair in shown]
            condition = when(present, [pair.sample.flags for pair in pairs])
            for number, keys in product(tensor, shapes, sizes):
                terms[tuple(sorted((*condition, *keys)))] += number
    return terms


def when(present: Sequence[bool], flags: Sequence[dict[str, bool]]) -> tuple[str, ...]:
    """The one key that decides whether a tensor is there; nothing where it always is."""
    if all(present):
        return ()
    if min(sum(present), len(present) - sum(present)) > 0:
        for key in ordered(flags):
            given = [one[key] for one in flags]
            if given == list(present):
                return (f"?{key}",)
            if given == [not one for one in present]:
                return (f"!{key}",)
    raise NotTold("no one key decides it")


def product(
    tensor: str, shapes: Sequence[tuple[int, ...]], sizes: Sequence[dict[str, int]]
) -> list[tuple[int, tuple[str, ...]]]:
    """Terms of one tensor: the product of its sides."""
    if len(shapes) < FEWEST or len({len(shape) for shape in shapes}) > 1:
        raise NotTold(f"{tensor} is seen too seldom")
    terms: list[tuple[int, tuple[str, ...]]] = [(1, ())]
    for side in zip(*shapes, strict=True):
        found = sum_of_keys(side, sizes)
        terms = [(n * m, (*keys, *more)) for n, keys in terms for m, more in found]
    return terms


def sum_of_keys(
    side: tuple[int, ...], sizes: Sequence[dict[str, int]]
) -> list[tuple[int, tuple[str, ...]]]:
    """One side of a tensor in the keys of the config: a small number, a multiple of one key, a sum
    of two keys or of one and a number, or a product of two."""
    if len(set(side)) == 1 and side[0] <= 8:
        if len(side) < ENOUGH and side[0] > 1:
            raise NotTold("a number of layers, as likely")
        return [(side[0], ())]
    keys = ordered(sizes)
    for factor, key in itertools.product((1, 2, 3, 4), keys):
        if all(n == factor * one[key] for n, one in zip(side, sizes, strict=True)):
            return [(factor, (key,))]
    for key, more in itertools.product(keys, (1, 2)):
        if all(n == one[key] + more for n, one in zip(side, sizes, strict=True)):
            return [(1, (key,)), (more, ())]
    for a, b in itertools.combinations(keys, 2):
        if all(n == one[a] + one[b] for n, one in zip(side, sizes, strict=True)):
            return [(1, (a,)), (1, (b,))]
    for factor, (a, b) in itertools.product((1, 2), itertools.combinations(keys, 2)):
        if all(n == factor * one[a] * one[b] for n, one in zip(side, sizes, strict=True)):
            return [(factor, (a, b))]
    raise NotTold(f"no keys give {side}")


def ordered(values: Sequence[dict[str, Any]]) -> list[str]:
    """Keys that all have: the usual ones, then those at the top, then by name."""
    shared = set.intersection(*(set(one) for one in values))
    order = {key: place for place, key in enumerate(_FIRST)}
    return sorted(shared, key=lambda key: (order.get(key, 99), key.count("."), len(key), key))


@cache
def types() -> tuple[str, ...]:
    return tuple(sorted(name for name in ARCHITECTURES if name in CONFIG_MAPPING))


def table() -> str:
    """The whole file: the version, then the types by name."""
    first = json.dumps({"versions": {"transformers": transformers.__version__}})
    rows = (line(name) for name in types() if classes_of(name))
    return "".join(f"{row}\n" for row in (first.replace(" ", ""), *rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE", help="print their lines")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    given = parser.parse_args()
    if given.types:
        print("\n".join(map(line, given.types)))
    elif not given.check:
        TARGET.write_text(table(), encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != table():
        print(f"{TARGET.name} is out of date; run tools/built_classes.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
