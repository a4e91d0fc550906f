"""One calibration: what its layers are given, and what becomes of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from headcount.running.boundary import quiet_transformers
from headcount.running.progress import progress_bar
from headcount.running.tokens import load_tokenizer

from ..attention_map.attention_tensors import Where
from ..latent.latent_fit import LatentFit
from ..latent.mla_fit import MlaFit
from ..latent.mla_shape import MlaShape
from ..latent.names import key_value_tensors
from ..merge.attention_weights import Groups
from ..merge.ladder import Ladder
from ..plan.errors import BadValuesError, CannotConvertError
from ..plan.heads import HeadsByLayer
from ..plan.source import ConversionSource
from ..rewrite.freedom import alone, freedoms_of
from ..rewrite.groups import is_tied
from ..rewrite.layer import MadeBefore, RewrittenLayer
from ..rewrite.tensors import weights_of
from ..rewrite.uncalibrated import finite
from ..stream.reader import SourceReader
from .attention_place import attention_place
from .calibration_text import CalibrationText, calibration_text
from .first_tokens import with_first_tokens
from .free_memory import give_back
from .layer_calls import Calls, always, record
from .layer_fit import LayerFit
from .layer_task import FittedLayer, LayerTask, States, run_rows
from .layered_model import LayeredModel
from .output_uses import LayerUses
from .pairs.calibration_pairs import CalibrationPairs
from .pairs.pair_memory import PairMemory
from .placed import CPU, placed
from .random_tokens import WHITE_FOR_HEADS, WHITE_FOR_LATENTS, random_tokens
from .shared_batches import shared_batches
from .state_rows import MEMORY_BUDGET, NotFiniteStatesError, Room, StateRows, new_rows

Rows = CalibrationText | CalibrationPairs


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What `calibrated_layers` is asked for, the same in all processes."""

    source: ConversionSource
    heads: HeadsByLayer
    ladder: Ladder
    calibration: str | None
    calibration_tokens: int
    sha256: str | None
    ranks: Mapping[Where, int]
    mla: MlaShape | None
    chosen: Mapping[Where, Groups]
    row_tokens: int | None
    device: torch.device


class Calibration:
    """Layer by layer, in the order in which the model computes them."""

    def __init__(self, asked: Asked, reader: SourceReader) -> None:
        source, heads, ranks, self._chosen = asked.source, asked.heads, asked.ranks, asked.chosen
        self._source, self._ladder, self._ranks, self._mla = source, asked.ladder, ranks, asked.mla
        self._changed = {w: own for w, own in heads.layers.items() if own.is_changed or w in ranks}
        self._shared = shared_batches()
        self._reader, self._device = reader, asked.device
        self._memory: PairMemory | None = None  # what the encoder gives
        self._layered = self._model(heads)
        self._tensors = source.attention_map.attentions
        self._freedoms = freedoms_of(source)
        self._read = finite(reader)
        self._habits = LayerUses()

    def _model(self, heads: HeadsByLayer) -> LayeredModel:
        _refuse_unknown(self._source, heads)
        return LayeredModel(self._source, self._reader, device=self._device)

    def text(self, calibration: str | None, tokens: int, row: int | None) -> Rows:
        """What layers are fitted to."""
        runnable, seed = self._layered.runnable, self._ladder.seed
        if calibration is None:
            white = WHITE_FOR_LATENTS if self._ranks else WHITE_FOR_HEADS
            return random_tokens(runnable, seed, white)
        with quiet_transformers():
            text = calibration_text(
                self._source, runnable, calibration, tokens, seed, row_tokens=row
            )
            tokenizer = load_tokenizer(self._source.real[0])
            return with_first_tokens(text, tokenizer, vocabulary=runnable.vocab_size, seed=seed)

    @torch.no_grad()
    def layers(
        self, text: Rows, done: MadeBefore, progress: bool, ready: int
    ) -> Iterator[RewrittenLayer]:
        layered = self._layered
        states, calls = self._start(text)
        last = max(index for index, _ in self._changed)
        size = last + 1
        bar = progress_bar(None, "calibrating", "layer", shown=progress, total=size, initial=ready)
        try:
            for index in range(last + 1):
                with layered.layer(index) as layer, self._finite(f"layer {index} gives"):
                    found = self._layer(index, layer, calls[index], states, text, done, last)
                give_back()
                if found is not None:
                    yield found
                bar.update(index >= ready)
        finally:
            bar.close()
            states.close()
            if self._memory is not None:
                self._memory.close()

    def _start(self, text: Rows) -> tuple[States, Sequence[Calls]]:
        assert isinstance(text, CalibrationText)
        states = self._states(*text.ids.shape)
        with self._finite("its embeddings give"):
            mine, into = self._shared.mine(text.batches), (states.original, states.converted)
            calls = record(self._layered, text.ids, text.batches, into, mine)
        return states, [always(call) for call in calls]

    def _states(
        self, count: int, length: int, of: Callable[[StateRows], StateRows] = lambda rows: rows
    ) -> States:
        """Room for `count` rows of `length` tokens; `of` makes of rows what is used."""
        width, dtype = self._layered.hidden_size, self._layered.dtype
        template = torch.empty(length, width, dtype=dtype)
        # Half of the budget for four rows of hidden states, half for the wider features of an MLP.
        half = MEMORY_BUDGET // 2
        rooms = [
            new_rows(count, template, held=4, budget=half, device=self._device) for _ in range(4)
        ]
        rows = [of(room) for room in rooms]
        original, converted, target, given = rows
        return States(
            original=original,
            converted=converted,
            target=target,
            given=given,
            features=Room(count, length, dtype, half, of, self._device),
        )

    @contextmanager
    def _finite(self, who_gives: str) -> Iterator[None]:
        try:
            yield
        except NotFiniteStatesError as error:
            raise BadValuesError(
                f"{self._source.folder}: {who_gives} NaN or infinity on the calibration text: its"
                " weights are damaged (headcount audit --scan shows where), or float32 cannot hold"
                " what it computes; nothing was kept"
            ) from error

    def _layer(
        self,
        index: int,
        layer: nn.Module,
        calls: Calls,
        states: States,
        text: Rows,
        done: MadeBefore,
        last: int,
    ) -> RewrittenLayer | None:
        """The new layer, None if it stays; the states move on."""
        changed = [where for where in sorted(self._changed) if where[0] == index]
        if all(map(self._is_kept, changed)):
            mine = self._shared.mine(text.batches)
            run_rows(layer, calls, states.original, mine)
            run_rows(layer, calls, states.converted, mine)
            return RewrittenLayer(index=index, tensors={}, measured={}) if changed else None
        tasks = self._tasks(changed, layer, calls, text)
        before = self._shared.from_main(lambda: done(index))
        if before is not None:
            made = self._of_mlp(index, before.tensors)
            self._fit(tasks[-1], states).skip(before.tensors, made, is_last=index == last)
            return before
        fits = [
            self._fit(task, states).run(self._seed(task), is_last=index == last) for task in tasks
        ]
        return self._rewritten(index, fits)

    def _seed(self, task: LayerTask) -> int:
        index, cross = task.tensors.where
        return self._ladder.seed + index + (len(self._layered.layers) if cross else 0)

    def _tasks(
        self, changed: Sequence[Where], layer: nn.Module, calls: Calls, text: Rows
    ) -> list[LayerTask]:
        """Those of a layer, in the order in which it computes them."""
        found, earlier = list[LayerTask](), dict[str, str]()
        for where in changed:
            task = self._task(where, layer, calls, text)
            found.append(
                replace(
                    task,
                    is_first=where != changed[-1],
                    earlier=dict(earlier),
                    replaced={path: layer.get_parameter(path) for path in earlier.values()},
                )
            )
            earlier |= task.place.names
        return found

    def _task(self, where: Where, layer: nn.Module, calls: Calls, text: Rows) -> LayerTask:
        tensors, (index, _) = self._tensors[where], where
        return LayerTask(
            layer=layer,
            calls=calls,
            place=attention_place(self._layered, tensors),
            tensors=tensors,
            read=lambda info: self._read(info).to(self._device),
            stored=lambda path: self._on_disk(index, path) is not None,
            freedom=alone(self._freedoms[where]),
            heads=self._changed[where],
            ladder=self._ladder,
            text=text,
            uses=self._habits,
            chosen=self._chosen.get(where),
            shared=self._shared,
            memory=self._memory,
            device=self._device,
        )

    def _is_kept(self, where: Where) -> bool:
        """Whether all stays as it is, since heads that are to become one are equal."""
        own = self._changed[where]
        if own.is_pruned or self._ranks:
            return False
        return is_tied(weights_of(self._tensors[where], self._read), own)

    def _fit(self, task: LayerTask, states: States) -> LayerFit:
        rank = self._ranks.get(task.tensors.where)
        if self._mla is not None and rank is not None:
            return MlaFit(task, states, self._mla)
        return LayerFit(task, states) if rank is None else LatentFit(task, states, rank)

    def _of_mlp(self, index: int, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Those of the files that are no attention's, by their paths in the layer."""
        start, stored = self._layered.path_of(index), self._source.checkpoint.tensors
        own = self._source.attention_map.by_name
        inside = {
            self._layered.inside(n): v for n, v in tensors.items() if n in stored and n not in own
        }
        return {path.removeprefix(start): value for path, value in inside.items()}

    def _on_disk(self, index: int, path: str) -> str | None:
        return self._layered.on_disk(self._layered.path_of(index) + path)

    def _rewritten(self, index: int, made: Sequence[FittedLayer]) -> RewrittenLayer:
        """Of what was made of each attention that changed."""
        tensors, measured = dict[str, torch.Tensor](), dict[str, Any]()
        for one in made:
            tensors |= one.attention
            measured |= one.measured
            for path, value in one.mlp.items():
                name = self._on_disk(index, path)
                assert name is not None
                tensors[name] = value.contiguous()
        made_of = key_value_tensors(self._tensors[index, False]) if self._ranks else ()
        return RewrittenLayer(
            index=index,
            tensors=placed(tensors, CPU),
            measured=measured,
            made_of=tuple(held.tensor.name for held in made_of),
        )


def _refuse_unknown(source: ConversionSource, heads: HeadsByLayer) -> None:
    crossed = [index for (index, cross), own in heads.layers.items() if cross and own.is_changed]
    if crossed or heads.readers:
        what = "cross-attention" if crossed else "layers that read another's cache"
        raise CannotConvertError(
            f"{source.folder}: has {what}, which cannot be calibrated: use --method merge without"
            " --calibration"
        )
