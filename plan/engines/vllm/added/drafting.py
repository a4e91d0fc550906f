"""What speculative decoding takes in vLLM beside a draft's cache: weights, buffers, a wider step.

From vllm/config/speculative.py, vllm/v1/spec_decode and vllm/v1/worker/gpu/spec_decode of 0.11 to
0.32. A draft is loaded on the last pipeline stage alone.
"""

from collections.abc import Iterator
from math import ceil
from typing import TYPE_CHECKING

from ....budget import Term
from ....planned_model import PlannedModel
from ....request import Workload
from ..defaults import StepLimits
from .spread import vllm_spread

if TYPE_CHECKING:
    from ....options.speculation import Speculation

_DRAFT_MODELS_SINCE = (0, 15)  # of the V1 engine
_DFLASH_SINCE, _DSPARK_SINCE = (0, 20), (0, 28)  # 0.24 has no DSpark
_HEADS_SHARED_SINCE = (0, 16)  # before, MTP layers kept the copies that their files have
_BUFFERS_COUNT_SINCE = (0, 27)  # total_consumed of vllm/utils/mem_utils.py
# Bytes of each logit while the V1 runner profiles its rejection sampler, of a token that is drafted
# for each sequence: logits of both (2 x 2), those of the bonus token (2) and a float32 copy (4),
# those of the drafted one, their copy, its probabilities, and random numbers with their inverse
# (5 x 4); where top-k sorts, what the sort takes comes on top (RejectionSampler.forward).
_REJECTION_SINCE, _REJECTION, _SORT = (0, 12), 30.0, 20.0
REJECTION_ERROR = 0.25


def draft_refused(model: PlannedModel, work: Workload) -> Iterator[str]:
    """Why vLLM would not start with the draft."""
    speculation = work.request.speculative_config
    if speculation is None or speculation.draft is None:
        return
    if speculation.method == "dflash" and not work.version.at_least(*_DFLASH_SINCE):
        yield "drafts of DFlash are taken since 0.20"
    if speculation.method == "dspark" and not work.version.at_least(*_DSPARK_SINCE):
        yield "drafts of DSpark are taken since 0.28"
    if speculation.method != "draft_model":
        return
    draft = speculation.draft
    if not work.version.at_least(*_DRAFT_MODELS_SINCE):
        yield "draft models are taken since 0.15; before, heads of EAGLE, MTP and ngram draft"
    if (draft.spec.vocab_size or 0) != (model.spec.vocab_size or 0):
        yield (
            f"the draft {draft.model_id} has a vocabulary of {draft.spec.vocab_size or 0:,}, the"
            f" model one of {model.spec.vocab_size or 0:,}"
        )


def draft_terms(model: PlannedModel, work: Workload, step: StepLimits) -> Iterator[Term]:
    """On the last stage."""
    speculation = work.request.speculative_config
    if speculation is None:
        return
    from ...added.drafts import draft_weights  # only what drafts wants it

    keeps = not work.version.at_least(*_HEADS_SHARED_SINCE)
    found = draft_weights(
        model, work, speculation, vllm_spread(model, work), keeps_head_copies=keeps
    )
    if found is not None:
        yield found
    if speculation.takes_hidden_states and work.version.at_least(*_BUFFERS_COUNT_SINCE):
        yield _buffer(model, work, speculation, step)


def _buffer(
    model: PlannedModel, work: Workload, speculation: "Speculation", step: StepLimits
) -> Term:
    """Hidden states that it is handed (DraftModelSpeculator); of smaller versions they are not
    counted, as what the runner makes before the profile was not."""
    hidden = (speculation.draft or model).spec.hidden_size
    width = ceil(work.compute_bits / 8)
    return Term(
        key="draft_buffer",
        title="Draft's input",
        bytes=step.max_num_batched_tokens * hidden * width,
        formula=f"{step.max_num_batched_tokens:,} tokens x hidden {hidden:,} x {width} B",
    )


def overlaps_steps(work: Workload) -> bool:
    """Whether the scheduler runs a step ahead, as what drafts allows (async_scheduling of
    VllmConfig.__post_init__)."""
    speculation = work.request.speculative_config
    if speculation is None:
        return True
    if speculation.method == "draft_model":
        return work.version.at_least(0, 28)
    return speculation.method not in ("ngram", "suffix", "medusa")


def handed_elements(model: PlannedModel, work: Workload) -> int:
    """Elements of a token that EAGLE-3 and DFlash keep of the model's layers while a pass runs."""
    speculation = work.request.speculative_config
    if speculation is None or speculation.method not in ("eagle3", "dflash", "dspark"):
        return 0
    if speculation.method != "eagle3" and speculation.draft is not None:
        from ...added.drafts import states_read

        return states_read(speculation.draft, speculation.method) * model.spec.hidden_size
    return 3 * model.spec.hidden_size


def rejection_bytes(work: Workload, *, sorts: bool) -> float | None:
    """Bytes of each logit while the V1 runner profiles a step with drafted tokens; None where that
    takes no more than any step's sampling."""
    if not work.request.drafted or not work.version.at_least(*_REJECTION_SINCE):
        return None
    return _REJECTION + (_SORT if sorts else 0)
