"""EXAONE: Llama's layers with GPT-Neo's names, then windows and q/k norms."""

from ..architecture import MULTIMODAL, Architecture, Conversion
from ..attention.layer_kinds import FULL, SLIDING, all_full, full_every
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.feed_forward import Experts, after_dense, typed
from ..body.shared import DECODER_MLP_BIAS
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..tensors.names import LLAMA_NAMES, TensorNames, separate


def exaone4_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """Hybrid (three sliding, one full) where a window is set; EXAONE-4.0-1.2B sets none."""
    pattern = view.get("sliding_window_pattern")
    if not view.optional("sliding_window") or not pattern:
        return all_full(view, count)
    if isinstance(pattern, str):  # such as LLLG
        kinds = {"L": SLIDING, "G": FULL}
        return tuple(kinds.get(pattern[i % len(pattern)], FULL) for i in range(count))
    return full_every(view.integer("sliding_window_pattern"))(view, count)


# Its own files call the projections as GPT-Neo does.
EXAONE_NAMES = TensorNames(
    modules={**separate("attn.attention", o="out_proj"), **LLAMA_NAMES.modules}
)

EXAONE4 = Architecture(
    types=("exaone4",),
    attention=AttentionShape(kinds=exaone4_kinds, norm="head"),
    body=Body(named=True),
    gguf=(Gguf(architecture="exaone4", windows=Windows(period=4, default=4096, depth=64)),),
)

ARCHITECTURES = (
    Architecture(
        types=("exaone",),
        attention=LLAMA_ATTENTION,
        body=DECODER_MLP_BIAS,
        tensors=EXAONE_NAMES,
        rotary="halves",
        conversion=Conversion(width_checked=True),
    ),
    EXAONE4,
    MULTIMODAL.relative("exaone4_5"),
    EXAONE4.relative(
        "exaone_moe",
        body=Body(experts=Experts(layers=typed(after_dense), shared="num_shared_experts")),
        gguf=(Gguf(architecture="exaone-moe", windows=Windows(period=4, default=128)),),
    ),
)
