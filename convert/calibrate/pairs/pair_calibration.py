"""The calibration of an encoder-decoder."""

from collections.abc import Sequence

from headcount.running.boundary import quiet_transformers

from ...plan.errors import CannotConvertError
from ...plan.heads import HeadsByLayer
from ..calibration import Calibration, Rows
from ..layer_calls import Calls
from ..layer_task import States
from ..layered_model import LayeredModel
from ..state_rows import MEMORY_BUDGET
from .calibration_pairs import CalibrationPairs, calibration_pairs
from .pair_calls import pair_memory, record_pairs
from .pair_memory import RaggedRows


class PairCalibration(Calibration):
    """Of an encoder-decoder, on pairs: self-attention and cross-attention of its decoder."""

    def _model(self, heads: HeadsByLayer) -> LayeredModel:
        if self._shared.team.count > 1:
            raise CannotConvertError(
                f"{self._source.folder}: an encoder-decoder is calibrated by one process: run it"
                " without a launcher"
            )
        return LayeredModel(self._source, self._reader, stack="decoder", device=self._device)

    def text(self, calibration: str | None, tokens: int, row: int | None) -> Rows:
        assert calibration is not None
        with quiet_transformers():
            seed = self._ladder.seed
            return calibration_pairs(
                *(self._source, self._layered.runnable, calibration, tokens, seed),
                row_tokens=row,
                device=self._device,
            )

    def _start(self, text: Rows) -> tuple[States, Sequence[Calls]]:
        assert isinstance(text, CalibrationPairs)
        longest = max(ids.shape[1] for ids in text.given)
        states = self._states(len(text.given), longest, RaggedRows)
        with self._finite("its encoder gives"):
            budget = MEMORY_BUDGET // 2
            encoder = LayeredModel(self._source, self._reader, stack="encoder", device=self._device)
            self._memory = pair_memory(encoder, text, budget=budget)
        with self._finite("its embeddings give"):
            into = (states.original, states.converted)
            calls = record_pairs(self._layered, text, self._memory, into)
        return states, calls
